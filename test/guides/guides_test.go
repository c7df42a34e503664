//go:build unix

package guides

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/internal/freeport"
	"docstore/internal/testprocess"
)

// binaries is the directory of the built commands.
var binaries string

// servers is the directory of servers that scripts/setup installs outside PATH.
var servers string

func TestMain(m *testing.M) {
	testprocess.Main(m, func(dir string) error {
		binaries = dir
		output := dir + string(filepath.Separator)
		if err := testprocess.Build("-o", output, "docstore/cmd/..."); err != nil {
			return err
		}
		return linkS3(dir)
	})
}

// linkS3 makes the S3 server that scripts/setup builds a command of the pages.
func linkS3(dir string) error {
	binary, err := filepath.Abs("../../.tools/versitygw-v1.8.0")
	if err == nil {
		_, err = os.Stat(binary)
	}
	if err != nil {
		return fmt.Errorf("run make setup, which builds the S3 server of the guides: %w", err)
	}
	servers = filepath.Join(dir, "servers")
	return errors.Join(os.Mkdir(servers, 0o755), os.Symlink(binary, filepath.Join(servers, "versitygw")))
}

// A step is a block to run and its expected output.
type step struct {
	block
	output  string
	checked bool // has an output block
}

// stepsOf returns the steps of a page.
func stepsOf(blocks []block) (steps []step) {
	for _, b := range blocks {
		switch b.info {
		case "sh run":
			steps = append(steps, step{block: b})
		case "output":
			last := &steps[len(steps)-1]
			last.output, last.checked = b.text, true
		}
	}
	return steps
}

// pattern converts an output block to a regular expression.
func pattern(output string) string {
	var b strings.Builder
	for line := range strings.Lines(output) {
		if line == "...\n" {
			b.WriteString(`(?:.*\n)*`)
			continue
		}
		b.WriteString(strings.ReplaceAll(regexp.QuoteMeta(line), `\.\.\.`, `.*`))
	}
	return `\A` + b.String() + `\z`
}

// A shell runs the steps of a page.
type shell struct {
	in       io.WriteCloser
	out      *bufio.Reader
	dir      string
	to, from *strings.Replacer // ports of the page to free ones, and back
}

// pageTimeout ends a page that hangs.
const pageTimeout = 8 * time.Minute

const sentinel = "=== the step has ended ==="

// ports are those that pages use.
var ports = []string{"7070", "7071", "7072", "7170", "7171", "7270", "7271", "7370", "7371", "7470", "7471", "7570", "7571", "8080", "5432", "2379", "2380", "7946", "11211"}

// replacers returns replacers from the ports of a page to free ones, and back.
func replacers(t *testing.T) (to, from *strings.Replacer) {
	t.Helper()
	var there, back []string
	for _, port := range ports {
		free := strings.TrimPrefix(freeport.Address(t), "127.0.0.1")
		there, back = append(there, ":"+port, free, "port="+port, "port="+free[1:]), append(back, free, ":"+port)
	}
	return strings.NewReplacer(there...), strings.NewReplacer(back...)
}

// clone copies the files of the repository, with changes that are not committed, to a directory.
func clone(t *testing.T, dir string) {
	t.Helper()
	copying := exec.Command("bash", "-c", "git ls-files -z --cached --others --exclude-standard | tar --null --ignore-failed-read -T - -c | tar -x -C "+dir)
	copying.Dir = root
	out, err := copying.CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// goEnv returns a setting of the go command.
func goEnv(t *testing.T, name string) string {
	t.Helper()
	out, err := exec.Command("go", "env", name).Output()
	require.NoError(t, err)
	return strings.TrimSpace(string(out))
}

// condition is what the first lines of a page say: "in a clone", "installs the commands".
type condition struct {
	clone    bool
	installs bool // the commands of this repository are not in PATH before
	settings bool // its output has the settings: the environment has none
}

var conditions = map[string]condition{
	"README.md":               {clone: true, installs: true},
	"docs/getting-started.md": {clone: true, installs: true},
	"docs/client.md":          {clone: true},
	"docs/sources.md":         {clone: true},
	"docs/configuration.md":   {settings: true},
}

func startShell(t *testing.T, c condition) *shell {
	t.Helper()
	cmd := exec.Command("bash", "--norc", "--noprofile")
	cmd.Dir = t.TempDir()
	s := &shell{dir: cmd.Dir}
	s.to, s.from = replacers(t)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // includes daemons that the page leaves running
	repository, err := filepath.Abs(root)
	require.NoError(t, err)
	// test/image runs a page with the commands of the container image.
	commands := cmp.Or(os.Getenv("DOCSTORE_GUIDE_COMMANDS"), binaries)
	address := func(port string) string { return s.to.Replace("127.0.0.1:" + port) }
	path := servers + ":" + os.Getenv("PATH")
	if !c.installs {
		path = commands + ":" + filepath.Join(repository, "deploy") + ":" + path
	}
	cmd.Env = append(os.Environ(), "PATH="+path, "HOME="+cmd.Dir, "GOCACHE="+goEnv(t, "GOCACHE"), "GOMODCACHE="+goEnv(t, "GOMODCACHE"),
		"npm_config_cache="+cmp.Or(os.Getenv("npm_config_cache"), filepath.Join(os.Getenv("HOME"), ".npm")), "LC_ALL=C.UTF-8",
		"DOCSTORE_AUDIT_LOG="+filepath.Join(cmd.Dir, ".audit.log")) // keeps its records out of the output of the pages
	if !c.settings { // free ports instead of the default ones
		cmd.Env = append(cmd.Env, "DOCSERVICED_BOXCAR="+address("7070"), "DOCSERVICED_HTTP="+address("7071"), "BOXCAR_SERVERS="+address("7070"))
	}
	if c.clone {
		clone(t, cmd.Dir)
	}
	s.in, err = cmd.StdinPipe()
	require.NoError(t, err)
	out, writer, err := os.Pipe()
	require.NoError(t, err)
	cmd.Stdout, cmd.Stderr = writer, writer
	s.out = bufio.NewReader(out)
	require.NoError(t, cmd.Start())
	require.NoError(t, writer.Close())
	kill := func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) } // they may have exited
	timeout := time.AfterFunc(pageTimeout, kill)
	var ending sync.WaitGroup
	ending.Go(func() {
		_ = cmd.Wait() // a command failed or it was killed; run reports it
		kill()         // remaining processes would keep the output open
	})
	t.Cleanup(func() {
		timeout.Stop()
		kill()
		ending.Wait()
		_ = out.Close()
	})
	_, err = io.WriteString(s.in, "set -euo pipefail\n")
	require.NoError(t, err)
	return s
}

// run runs a step and returns its output; ok is false if a command failed.
func (s *shell) run(commands string) (printed string, ok bool) {
	if _, err := fmt.Fprintf(s.in, "%s\necho; echo '%s'\n", s.to.Replace(commands), sentinel); err != nil {
		return err.Error(), false
	}
	var b strings.Builder
	for {
		line, err := s.out.ReadString('\n')
		if err != nil {
			return s.from.Replace(b.String() + line), false
		}
		if line == sentinel+"\n" {
			return s.from.Replace(strings.TrimSuffix(b.String(), "\n")), true
		}
		b.WriteString(line)
	}
}

// TestGuides runs the commands of each page.
func TestGuides(t *testing.T) {
	ran := 0
	for page, blocks := range guides(t) {
		steps := stepsOf(blocks)
		if len(steps) == 0 {
			continue
		}
		ran++
		t.Run(filepath.Base(page), func(t *testing.T) {
			t.Parallel()
			shell := startShell(t, conditions[page])
			for _, step := range steps {
				printed, ok := shell.run(step.text)
				require.True(t, ok, "%s:%d: command failed:\n%s\noutput:\n%s", page, step.line, step.text, printed)
				if step.checked {
					require.Regexp(t, pattern(step.output), strings.TrimSuffix(printed, "\n")+"\n", "%s:%d", page, step.line)
				}
			}
		})
	}
	require.GreaterOrEqual(t, ran, 10, "fewer guides than expected have commands")
}

// TestConfigurations: docserviced accepts each configuration file in the guides.
func TestConfigurations(t *testing.T) {
	checked := 0
	for page, blocks := range guides(t) {
		for _, b := range blocks {
			if b.info != "yaml config" {
				continue
			}
			checked++
			file := filepath.Join(t.TempDir(), "docserviced.yaml")
			require.NoError(t, os.WriteFile(file, []byte(b.text), 0o600))
			out, err := exec.Command(filepath.Join(binaries, "docserviced"), "config", "--config", file).CombinedOutput()
			require.NoError(t, err, "%s:%d: %s", page, b.line, out)
		}
	}
	require.Positive(t, checked)
}

func TestShell(t *testing.T) {
	require.Regexp(t, pattern("took ... s\n...\nend.\n"), "took 1.5 s\nmore\nand more\nend.\n")
	require.NotRegexp(t, pattern("end.\n"), "ends\n")
	require.NotRegexp(t, pattern("end\n"), "the end\n")

	shell := startShell(t, condition{})
	printed, ok := shell.run("printf 'at %s' 127.0.0.1:7070 localhost:7071; echo more >&2; touch file; ls -d file")
	require.True(t, ok)
	require.Equal(t, "at 127.0.0.1:7070at localhost:7071more\nfile\n", printed)
	printed, ok = shell.run("echo before\nfalse\necho behind\n")
	require.False(t, ok)
	require.Equal(t, "before\n", printed)
}
