package guides

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	links    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	headings = regexp.MustCompile(`(?m)^#+ (.*)$`)
	notSlug  = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
	fenced   = regexp.MustCompile("(?ms)^```.*?^```$")
)

// TestLinks: the targets of links exist, with their headings.
func TestLinks(t *testing.T) {
	for _, path := range find(t, append([]string{"C*.md", "docs/format/*.md", "clients/*/*.md", "deploy/*/*.md"}, pages...)) {
		page := filepath.Join(root, path)
		for _, link := range links.FindAllStringSubmatch(read(t, page), -1) {
			path, heading, _ := strings.Cut(link[1], "#")
			if strings.Contains(path, "://") {
				continue
			}
			target := page
			if path != "" {
				target = filepath.Join(filepath.Dir(page), filepath.FromSlash(path))
				_, err := os.Stat(target)
				require.NoError(t, err, "%s links to %s", page, link[1])
			}
			if heading != "" {
				require.Contains(t, anchors(read(t, target)), heading, "%s links to %s", page, link[1])
			}
		}
	}
}

// read returns a page without fenced blocks.
func read(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	return fenced.ReplaceAllString(string(content), "")
}

// anchors returns the link names of the headings.
func anchors(page string) (names []string) {
	for _, heading := range headings.FindAllStringSubmatch(page, -1) {
		names = append(names, strings.ReplaceAll(notSlug.ReplaceAllString(strings.ToLower(heading[1]), ""), " ", "-"))
	}
	return names
}
