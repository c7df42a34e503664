package guides

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A block is a fenced or indented block of a page.
type block struct {
	line int    // line number of its first line
	info string // info string of the fence; indented without one
	text string
}

// indented is the kind of blocks without a fence.
const indented = "indented"

// needs is the prefix of the info string of a block that is not run.
const needs = "sh needs: "

// parse returns the blocks of a page.
func parse(page string) (blocks []block) {
	var open *block
	closed := func(b *block) {
		blocks = append(blocks, *b)
		open = nil
	}
	blank := true // the previous line
	for number, line := range strings.Split(page, "\n") {
		info, fence := strings.CutPrefix(line, "```")
		switch isIndented := strings.HasPrefix(line, "    "); {
		case open != nil && open.info == indented:
			if isIndented {
				open.text += strings.TrimPrefix(line, "    ") + "\n"
				continue
			}
			closed(open)
			if fence {
				open = &block{line: number + 2, info: strings.TrimSpace(info)}
			}
		case open != nil && line == "```":
			closed(open)
		case open != nil:
			open.text += line + "\n"
		case fence:
			open = &block{line: number + 2, info: strings.TrimSpace(info)}
		case isIndented && blank:
			open = &block{line: number + 1, info: indented, text: strings.TrimPrefix(line, "    ") + "\n"}
		}
		blank = line == ""
	}
	return blocks
}

// root is the directory of the repository.
var root = filepath.Join("..", "..")

// pages are those with commands: README.md, the guides, and the pages beside the code that they
// explain.
var pages = []string{"README.md", "docs/*.md", "bench/*.md", "bench/fleet/*.md", "lsm/*.md", "boxcarrpc/*.md", "boxcarrpc/subset/*.md"}

// find returns the paths in the repository that match patterns; each pattern matches some.
func find(t *testing.T, patterns []string) (paths []string) {
	t.Helper()
	for _, pattern := range patterns {
		found, err := fs.Glob(os.DirFS(root), pattern)
		require.NoError(t, err)
		require.NotEmpty(t, found, pattern)
		paths = append(paths, found...)
	}
	return paths
}

// guides returns the blocks of pages by path.
func guides(t *testing.T) map[string][]block {
	t.Helper()
	guides := map[string][]block{}
	for _, path := range find(t, pages) {
		content, err := os.ReadFile(filepath.Join(root, path))
		require.NoError(t, err)
		guides[path] = parse(string(content))
	}
	return guides
}

// endless matches loops without a bound.
var endless = regexp.MustCompile(`^\s*(until|while) `)

// TestBlocks: each block of a guide declares its kind, so that no block escapes the tests by
// mistake.
func TestBlocks(t *testing.T) {
	kinds := map[string]bool{
		"sh run": true, "sh measures": true, "output": true, "yaml config": true, indented: true,
		"text": true, "go": true, "yaml": true, "json": true,
	}
	for page, blocks := range guides(t) {
		for i, b := range blocks {
			reason, unrun := strings.CutPrefix(b.info, needs)
			require.True(t, kinds[b.info] || unrun && reason != "", "%s:%d: commands need ```sh run, ```sh measures or ```sh needs: REASON; "+
				"other blocks are ```output, ```text, ```go or ```yaml; got %q", page, b.line-1, b.info)
			for line := range strings.Lines(b.text) {
				require.False(t, b.info == "sh run" && endless.MatchString(line), "%s:%d: %s may wait endlessly: bound it", page, b.line, strings.TrimSpace(line))
			}
			if b.info == "output" {
				require.True(t, i > 0 && blocks[i-1].info == "sh run", "%s:%d: output without a preceding sh run block", page, b.line-1)
			}
			if !unrun && b.info != "sh run" && b.info != "sh measures" && b.info != "output" {
				for line := range strings.Lines(b.text) {
					first, _, _ := strings.Cut(strings.TrimPrefix(line, "$ "), " ")
					require.False(t, ours[first], "%s:%d: command %q in a block that is not for commands", page, b.line, strings.TrimSpace(line))
				}
			}
		}
	}
}

func TestParse(t *testing.T) {
	blocks := parse("text\n```sh run\necho a\n```\n\n```output\na\n```\n```sh needs: root\nrm -rf /\n```\n\n    go test\n    more\n\n- item\n    of a list\n")
	require.Equal(t, []block{
		{line: 3, info: "sh run", text: "echo a\n"}, {line: 7, info: "output", text: "a\n"}, {line: 10, info: "sh needs: root", text: "rm -rf /\n"},
		{line: 13, info: indented, text: "go test\nmore\n"},
	}, blocks)
}
