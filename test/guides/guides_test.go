//go:build unix

package guides

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// binaries is where the commands are built.
var binaries string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "docstore-guides-")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		binaries = dir
		build := exec.Command("go", "build", "-o", dir+string(filepath.Separator), "docstore/cmd/...", "docstore/examples/frontend")
		if out, err := build.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "building the commands: %v\n%s", err, out)
			return 1
		}
		return m.Run()
	}())
}

// A step is a block that is run, and what it is to print.
type step struct {
	line     int // of the page
	commands string
	output   string
	checked  bool // there is an output block
}

// parse finds the steps of a page.
func parse(page string) (steps []step) {
	var block []string
	fence := "" // of the block that we are in; empty: none
	began := 0
	for number, line := range strings.Split(page, "\n") {
		switch {
		case fence == "" && strings.HasPrefix(line, "```"):
			fence, block, began = strings.TrimSpace(line), nil, number+1
		case fence != "" && line == "```":
			text := strings.Join(append(block, ""), "\n")
			switch fence {
			case "```sh run":
				steps = append(steps, step{line: began, commands: text})
			case "```output":
				if last := len(steps) - 1; last >= 0 {
					steps[last].output, steps[last].checked = text, true
				}
			}
			fence = ""
		case fence != "":
			block = append(block, line)
		}
	}
	return steps
}

// pattern is what an output block stands for.
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
	to, from *strings.Replacer // ports of the page for free ones, and back
}

const sentinel = "=== the step has ended ==="

func startShell(t *testing.T) *shell {
	t.Helper()
	var there, back []string
	for _, port := range []string{"7070", "7071", "7072", "7170", "7171", "8080"} {
		free := freePort(t)
		there, back = append(there, ":"+port, ":"+free), append(back, ":"+free, ":"+port)
	}
	s := &shell{to: strings.NewReplacer(there...), from: strings.NewReplacer(back...)}
	cmd := exec.Command("bash", "--norc", "--noprofile")
	cmd.Dir = t.TempDir()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // daemons that a page leaves running are in it
	repository, err := filepath.Abs(filepath.Join("..", ".."))
	require.NoError(t, err)
	address := func(port string) string { return s.to.Replace("127.0.0.1:" + port) }
	cmd.Env = append(os.Environ(), "PATH="+binaries+":"+filepath.Join(repository, "deploy")+":"+os.Getenv("PATH"), "HOME="+cmd.Dir, "LC_ALL=C.UTF-8",
		"DOCSERVICED_BOXCAR="+address("7070"), "DOCSERVICED_HTTP="+address("7071"), "BOXCAR_SERVERS="+address("7070"), "REPOSITORY="+repository)
	s.in, err = cmd.StdinPipe()
	require.NoError(t, err)
	out, writer, err := os.Pipe()
	require.NoError(t, err)
	cmd.Stdout, cmd.Stderr = writer, writer
	s.out = bufio.NewReader(out)
	require.NoError(t, cmd.Start())
	require.NoError(t, writer.Close())
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // all may have ended
		_ = cmd.Wait()                                      // killed: that is its error
		_ = out.Close()
	})
	_, err = io.WriteString(s.in, "set -euo pipefail\n")
	require.NoError(t, err)
	return s
}

// run runs a step and returns what it has printed; it is false if a command has failed.
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

// freePort is a port that nobody uses now.
func freePort(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	_, port, err := net.SplitHostPort(listener.Addr().String())
	require.NoError(t, err)
	return port
}

// TestGuides runs every page that has commands to run.
func TestGuides(t *testing.T) {
	pages, err := filepath.Glob(filepath.Join("..", "..", "docs", "*.md"))
	require.NoError(t, err)
	ran := 0
	for _, page := range pages {
		content, err := os.ReadFile(page)
		require.NoError(t, err)
		steps := parse(string(content))
		if len(steps) == 0 {
			continue
		}
		ran++
		t.Run(filepath.Base(page), func(t *testing.T) {
			t.Parallel()
			shell := startShell(t)
			for _, step := range steps {
				printed, ok := shell.run(step.commands)
				require.True(t, ok, "%s:%d: a command has failed:\n%s\nit printed:\n%s", page, step.line, step.commands, printed)
				if step.checked {
					require.Regexp(t, pattern(step.output), strings.TrimSuffix(printed, "\n")+"\n", "%s:%d", page, step.line)
				}
			}
		})
	}
	require.GreaterOrEqual(t, ran, 3, "getting started, operating and the client guide")
}

func TestParse(t *testing.T) {
	steps := parse("text\n```sh run\necho a\n```\n\n```output\na\n```\n```sh\nrm -rf /\n```\n```sh run\ntrue\n```\n")
	require.Equal(t, []step{{line: 2, commands: "echo a\n", output: "a\n", checked: true}, {line: 12, commands: "true\n"}}, steps)
	require.Regexp(t, pattern("took ... s\n...\nend.\n"), "took 1.5 s\nmore\nand more\nend.\n")
	require.NotRegexp(t, pattern("end.\n"), "ends\n")
	require.NotRegexp(t, pattern("end\n"), "the end\n")

	shell := startShell(t)
	printed, ok := shell.run("printf 'at %s' 127.0.0.1:7070; echo more >&2")
	require.True(t, ok)
	require.Equal(t, "at 127.0.0.1:7070more\n", printed)
	printed, ok = shell.run("echo before\nfalse\necho behind\n")
	require.False(t, ok)
	require.Equal(t, "before\n", printed)
}
