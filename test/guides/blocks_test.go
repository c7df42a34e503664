package guides

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A block is a fenced one of a page, an indented one, or a comment that is run.
type block struct {
	line int    // of the page, of its first line inside
	info string // behind the fence; "indented" or "run" where there is none
	text string
}

// The kinds of blocks without a fence.
const (
	indented = "indented"
	setUp    = "set-up"
)

// needs begins the info of a block that is not run.
const needs = "sh needs: "

// parse finds the blocks of a page.
func parse(page string) (blocks []block) {
	var open *block
	end := "" // the line that ends what is open
	closed := func(b *block) {
		blocks = append(blocks, *b)
		open = nil
	}
	blank := true // the line before
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

// guides are the pages by name, but for those of formats, which have no commands.
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
	return pages
}

// TestBlocks: every block of a guide says what it is, so that none is left out of the
// tests by oversight.
func TestBlocks(t *testing.T) {
	kinds := map[string]bool{
		"sh run": true, "sh measures": true, "output": true, "yaml config": true, setUp: true, indented: true,
		"text": true, "go": true, "yaml": true, "json": true,
	}
	for page, blocks := range guides(t) {
		for i, b := range blocks {
			reason, unrun := strings.CutPrefix(b.info, needs)
			require.True(t, kinds[b.info] || unrun && reason != "", "docs/%s:%d: a block of commands is ```sh run, ```sh measures or ```sh needs: and what; "+
				"another is ```output, ```text, ```go or ```yaml; this one is %q", page, b.line-1, b.info)
			if b.info == "output" {
				require.True(t, i > 0 && blocks[i-1].info == "sh run", "docs/%s:%d: an output of nothing that is run", page, b.line-1)
			}
			if !unrun && b.info != "sh run" && b.info != "sh measures" && b.info != setUp && b.info != "output" {
				for line := range strings.Lines(b.text) {
					first, _, _ := strings.Cut(strings.TrimPrefix(line, "$ "), " ")
					require.False(t, ours[first], "docs/%s:%d: %q is a command in a block that is not of commands", page, b.line, strings.TrimSpace(line))
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
