package guides

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A block is a fenced or indented block of a page, or a comment with setup commands.
type block struct {
	line int    // line number of its first line
	info string // info string of the fence; indented or setUp without one
	text string
}

// Kinds of blocks without a fence.
const (
	indented = "indented"
	setUp    = "set-up"
)

// needs is the prefix of the info string of a block that is not run.
const needs = "sh needs: "

// parse returns the blocks of a page.
func parse(page string) (blocks []block) {
	var open *block
	end := "" // the line that ends the open block
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
				open, end = &block{line: number + 2, info: strings.TrimSpace(info)}, "```"
			}
		case open != nil && line == end:
			closed(open)
		case open != nil:
			open.text += line + "\n"
		case fence:
			open, end = &block{line: number + 2, info: strings.TrimSpace(info)}, "```"
		case line == "<!-- run":
			open, end = &block{line: number + 2, info: setUp}, "-->"
		case isIndented && blank:
			open = &block{line: number + 1, info: indented, text: strings.TrimPrefix(line, "    ") + "\n"}
		}
		blank = line == ""
	}
	return blocks
}

// readmePage is the page that runs in a clone of the repository.
const readmePage = "../README.md"

// guides returns the blocks of README.md and of all pages of docs/ by name, except format pages, which have no commands.
func guides(t *testing.T) map[string][]block {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join("..", "..", "docs", "*.md"))
	require.NoError(t, err)
	pages := map[string][]block{}
	for _, path := range paths {
		content, err := os.ReadFile(path)
		require.NoError(t, err)
		pages[filepath.Base(path)] = parse(string(content))
	}
	require.NotEmpty(t, pages)
	readme, err := os.ReadFile(filepath.Join("..", "..", "README.md"))
	require.NoError(t, err)
	pages[readmePage] = parse(string(readme))
	return pages
}

// hiddenSetUps are the pages with hidden commands: a PostgreSQL server, which is started differently
// by each system.
var hiddenSetUps = map[string]bool{"sources.md": true}

// endless matches loops without a bound.
var endless = regexp.MustCompile(`^\s*(until|while) `)

// TestBlocks: each block of a guide declares its kind, so that no block escapes the tests by
// mistake.
func TestBlocks(t *testing.T) {
	kinds := map[string]bool{
		"sh run": true, "sh measures": true, "output": true, "yaml config": true, setUp: true, indented: true,
		"text": true, "go": true, "yaml": true, "json": true,
	}
	for page, blocks := range guides(t) {
		for i, b := range blocks {
			reason, unrun := strings.CutPrefix(b.info, needs)
			require.True(t, kinds[b.info] || unrun && reason != "", "docs/%s:%d: commands need ```sh run, ```sh measures or ```sh needs: REASON; "+
				"other blocks are ```output, ```text, ```go or ```yaml; got %q", page, b.line-1, b.info)
			require.True(t, b.info != setUp || hiddenSetUps[page], "docs/%s:%d: hidden commands: show readers everything that a page needs", page, b.line)
			for line := range strings.Lines(b.text) {
				require.False(t, b.info == "sh run" && endless.MatchString(line), "docs/%s:%d: %s may wait endlessly: bound it", page, b.line, strings.TrimSpace(line))
			}
			if b.info == "output" {
				require.True(t, i > 0 && blocks[i-1].info == "sh run", "docs/%s:%d: output without a preceding sh run block", page, b.line-1)
			}
			if !unrun && b.info != "sh run" && b.info != "sh measures" && b.info != setUp && b.info != "output" {
				for line := range strings.Lines(b.text) {
					first, _, _ := strings.Cut(strings.TrimPrefix(line, "$ "), " ")
					require.False(t, ours[first], "docs/%s:%d: command %q in a block that is not for commands", page, b.line, strings.TrimSpace(line))
				}
			}
		}
	}
}

func TestParse(t *testing.T) {
	blocks := parse("text\n```sh run\necho a\n```\n\n```output\na\n```\n```sh needs: root\nrm -rf /\n```\n\n    go test\n    more\n\n<!-- run\ntrue\n-->\n- item\n    of a list\n")
	require.Equal(t, []block{
		{line: 3, info: "sh run", text: "echo a\n"}, {line: 7, info: "output", text: "a\n"}, {line: 10, info: "sh needs: root", text: "rm -rf /\n"},
		{line: 13, info: indented, text: "go test\nmore\n"}, {line: 17, info: setUp, text: "true\n"},
	}, blocks)
}
