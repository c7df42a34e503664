package guides

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// ours are the commands of this repository.
var ours = map[string]bool{"docserviced": true, "boxcar": true, "docstore-updater": true, "docstore": true}

var (
	// inline matches commands in backquotes.
	inline  = regexp.MustCompile("`(?:[A-Z_]+=\\S+ )?(docserviced|boxcar|docstore-updater|docstore) ([a-z-]+)([^`]*)`")
	flagsIn = regexp.MustCompile(` --([a-z][a-z0-9-]*)`)
)

// TestInlineCommands: each flag in an inline command exists.
func TestInlineCommands(t *testing.T) {
	help := map[string]string{}
	checked := 0
	for _, page := range find(t, append([]string{"CONTRIBUTING.md"}, pages...)) {
		for _, line := range inline.FindAllStringSubmatch(read(t, filepath.Join(root, page)), -1) {
			command := line[1] + " " + line[2]
			if help[command] == "" {
				out, err := exec.Command(filepath.Join(binaries, line[1]), line[2], "--help").CombinedOutput()
				require.NoError(t, err, "%s: %s: %s", page, line[0], out)
				help[command] = string(out)
			}
			for _, flag := range flagsIn.FindAllStringSubmatch(line[3], -1) {
				checked++
				require.Regexp(t, `--`+flag[1]+`\b`, help[command], "%s: %s", page, line[0])
			}
		}
	}
	require.Greater(t, checked, 10)
}

// TestUnrunCommands checks the syntax of commands that are not run. The commands of this
// repository parse their own lines; benchmark programs and tests must exist and have the
// flags.
func TestUnrunCommands(t *testing.T) {
	checked := map[string]int{}
	for page, blocks := range guides(t) {
		blocks = append(blocks, inlineMeasures(t, filepath.Join(root, page))...)
		for _, b := range blocks {
			if b.info != "sh measures" && b.info != indented && !strings.HasPrefix(b.info, "sh") || b.info == "sh run" {
				continue
			}
			c := checker{t: t, place: page, line: b.line, dir: "."}
			if b.info == indented && !c.measures(b.text) {
				continue // a diagram
			}
			for line := range strings.SplitAfterSeq(strings.ReplaceAll(b.text, "\\\n", " "), "\n") {
				commands, dir := commandsIn(line), c.dir
				for _, command := range commands {
					checked[c.check(command)]++
				}
				if len(commands) > 1 {
					c.dir = dir // "cd bench && ..." applies to its line
				}
			}
		}
	}
	for _, kind := range []string{"ours", "program", "tests"} {
		require.Positive(t, checked[kind], kind)
	}
}

// measuring matches benchmark commands in backquotes.
var measuring = regexp.MustCompile("`((?:cd bench && )?go (?:run|test) [^`]+)`")

// inlineMeasures returns the inline benchmark commands of a page as blocks.
func inlineMeasures(t *testing.T, page string) (blocks []block) {
	t.Helper()
	for _, command := range measuring.FindAllStringSubmatch(read(t, page), -1) {
		blocks = append(blocks, block{info: "sh measures", text: strings.ReplaceAll(command[1], "\n", " ") + "\n"})
	}
	return blocks
}

// checker checks the commands of a block.
type checker struct {
	t     *testing.T
	place string
	line  int
	dir   string // current directory, relative to the root
	clone string // directory of a clone of the root, if any
}

// measures reports whether an indented block contains commands.
func (*checker) measures(text string) bool {
	return strings.HasPrefix(text, "cd bench && go ") || strings.HasPrefix(text, "go test ")
}

func (c *checker) require(ok bool, command []string, what string) {
	c.t.Helper()
	require.True(c.t, ok, "%s:%d: %s: %s", c.place, c.line, strings.Join(command, " "), what)
}

// check checks a command and returns its kind.
func (c *checker) check(command []string) (kind string) {
	c.t.Helper()
	name, args := command[0], command[1:]
	switch {
	case ours[name]:
		out, err := exec.Command(filepath.Join(binaries, name), append(args, "--help")...).CombinedOutput()
		c.require(err == nil, command, string(out))
		return "ours"
	case name == "git" && args[0] == "clone":
		c.clone = args[len(args)-1]
	case name == "cd" && args[0] == c.clone:
	case name == "cd":
		c.dir = filepath.Join(c.dir, args[0])
		c.require(isDir(filepath.Join(root, c.dir)), command, "no such directory")
	case name == "go" && args[0] == "run":
		return c.checkProgram(command, args[1], args[2:])
	case name == "go" && args[0] == "test":
		return c.checkTests(command, args[1:])
	case name == "make" && len(args) > 0:
		makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
		require.NoError(c.t, err)
		c.require(strings.Contains(string(makefile), "\n"+args[0]+":"), command, "no such target")
	case strings.Contains(name, "/") && !filepath.IsAbs(name):
		info, err := os.Stat(filepath.Join(root, c.dir, name))
		c.require(err == nil && info.Mode()&0o111 != 0, command, "no such program")
	}
	return "other"
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// checkProgram checks the flags of a go run command, from the help of our commands or the
// source of other programs.
func (c *checker) checkProgram(command []string, pkg string, args []string) (kind string) {
	c.t.Helper()
	if name := filepath.Base(pkg); ours[name] {
		return c.check(append([]string{name}, args...))
	}
	source := c.source(command, pkg, "*.go")
	for _, arg := range args {
		if name, isFlag := strings.CutPrefix(arg, "-"); isFlag {
			name, _, _ = strings.Cut(strings.TrimPrefix(name, "-"), "=")
			defined := regexp.MustCompile(`\b[A-Za-z0-9]+\((?:&?[\w.]+, )*"` + regexp.QuoteMeta(name) + `", `)
			c.require(defined.MatchString(source), command, "no flag -"+name)
		}
	}
	return "program"
}

// checkTests checks that the packages have matching tests or benchmarks.
func (c *checker) checkTests(command, args []string) (kind string) {
	c.t.Helper()
	source := ""
	var wanted []string // expressions
	for i := 0; i < len(args); i++ {
		switch arg := args[i]; {
		case arg == "-args":
			i = len(args)
		case strings.HasPrefix(arg, "."):
			source += c.source(command, arg, "*_test.go")
		case arg == "-run" || arg == "-bench":
			i++
			if args[i] != "^$" {
				wanted = append(wanted, args[i])
			}
		case arg == "-benchtime" || arg == "-count" || arg == "-cpu" || arg == "-tags":
			i++
		}
	}
	c.require(source != "", command, "the package has no tests")
	functions := regexp.MustCompile(`(?m)^func ((?:Test|Benchmark|Fuzz)\w+)`).FindAllStringSubmatch(source, -1)
	for _, expression := range wanted {
		matches, found := regexp.MustCompile(expression), false
		for _, function := range functions {
			found = found || matches.MatchString(function[1])
		}
		c.require(found, command, "nothing matches "+expression)
	}
	return "tests"
}

// source returns the concatenated files of a package.
func (c *checker) source(command []string, pkg, pattern string) string {
	c.t.Helper()
	paths, err := filepath.Glob(filepath.Join(root, c.dir, pkg, pattern))
	require.NoError(c.t, err)
	c.require(len(paths) > 0, command, "no package "+pkg)
	var text strings.Builder
	for _, path := range paths {
		content, err := os.ReadFile(path)
		require.NoError(c.t, err)
		text.Write(content)
	}
	return text.String()
}
