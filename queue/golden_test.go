package queue

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"docstore/internal/vfs"
)

// TestGolden reads segments that were written by this version when it was new.
// With -update it writes them: only ever for a version that is not out yet.
func TestGolden(t *testing.T) {
	for _, codec := range Codecs() {
		t.Run(codec, func(t *testing.T) {
			dir := filepath.Join("testdata", fmt.Sprintf("v%d-%s", formatVersion, codec))
			written, items := smallQueue(t, codec, false)
			if *updateFlag {
				require.NoError(t, os.MkdirAll(dir, 0o755))
				for name, content := range written {
					require.NoError(t, os.WriteFile(filepath.Join(dir, name), content, 0o644))
				}
			}
			files := map[string][]byte{}
			for name := range written {
				content, err := os.ReadFile(filepath.Join(dir, name))
				require.NoError(t, err)
				files[name] = content
				if codec == "none" { // the others may learn to compress better
					require.Equal(t, hex.Dump(content), hex.Dump(written[name]), name)
				}
			}
			mem := memWith(t, files)
			r := openReader(t, mem)
			for i, e := range scan(t, r, Position{}) {
				items[i].at = e.at // depends on how well the documents were compressed
			}
			requireItems(t, r, items)
			requireSound(t, mem)
			assert.Equal(t, "cursor-7", string(openWriter(t, testOptions(mem)).Cursor()))
		})
	}
}

// formatPage is the description of the format, with an example in it.
const formatPage = "../docs/format/segment.md"

// TestFormatPage compares the example in the description of the format with what
// is written.
func TestFormatPage(t *testing.T) {
	mem := newMem(t)
	opts := testOptions(mem)
	w := openWriter(t, opts)
	_, err := w.Append([]byte("cat"), []byte("meow"))
	require.NoError(t, err)
	_, err = w.Delete([]byte("dog"))
	require.NoError(t, err)
	w.SetCursor([]byte("line 2"))
	require.NoError(t, w.Flush())
	require.NoError(t, w.Close())
	content, err := vfs.ReadFile(mem, segmentPath(queueDir, 1, sealedSuffix))
	require.NoError(t, err)

	page, err := os.ReadFile(formatPage)
	require.NoError(t, err)
	var example []byte
	for line := range strings.Lines(string(page)) {
		// 00000000  44 53 54 51  text
		offset, rest, ok := strings.Cut(line, "  ")
		if !ok || len(offset) != 8 {
			continue
		}
		var at int
		if _, err := fmt.Sscanf(offset, "%08x", &at); err != nil {
			continue
		}
		require.Equal(t, len(example), at, "offset of the line %q", line)
		columns, _, _ := strings.Cut(rest, "  ")
		b, err := hex.DecodeString(strings.ReplaceAll(strings.TrimSpace(columns), " ", ""))
		require.NoError(t, err, "line %q", line)
		example = append(example, b...)
	}
	if !bytes.Equal(content, example) {
		require.Equal(t, hex.Dump(content), hex.Dump(example))
	}
}
