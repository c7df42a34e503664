package queue_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"docstore/internal/vfs"
	"docstore/queue"
	"docstore/queue/codec"
	"docstore/queue/internal/segment"
	"docstore/queue/maintain"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestGolden reads segments that were written when this format version was new. With
// -update it writes them, which is allowed only before the version is released.
func TestGolden(t *testing.T) {
	for _, codec := range codec.Names() {
		t.Run(codec, func(t *testing.T) {
			dir := filepath.Join("testdata", "v0-"+codec)
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
				if codec == "none" { // compression of the others may improve
					require.Equal(t, hex.Dump(content), hex.Dump(written[name]), name)
				}
			}
			mem := memWith(t, files)
			r := openReader(t, mem)
			for i, e := range scan(t, r, queue.Position{}) {
				items[i].at = e.at // depends on the compressed sizes
			}
			requireItems(t, r, items)
			requireSound(t, mem)
			assert.Equal(t, "cursor-7", string(openWriter(t, testOptions(mem)).Cursor()))
		})
	}
}

// TestGoldenRewrites reads rewrites that were written when this format version was new:
// one of a compaction, and one of a repair that lost a document with a known id, and a
// block.
func TestGoldenRewrites(t *testing.T) {
	for name, rewrite := range map[string]func(t *testing.T, mem *vfs.Mem, items []item){
		"compact": func(t *testing.T, mem *vfs.Mem, _ []item) {
			_, err := maintain.Compact(context.Background(), queueDir, &maintain.CompactOptions{
				FS: mem, MaxDead: 0.01, Now: func() time.Time { return testStart.Add(time.Hour) },
			})
			require.NoError(t, err)
		},
		"repair": func(t *testing.T, mem *vfs.Mem, items []item) {
			name := segment.Path(queueDir, 1, segment.SealedSuffix)
			content, err := vfs.ReadFile(mem, name)
			require.NoError(t, err)
			content[bytes.Index(content, []byte(items[0].document))] ^= 1
			clear(content[items[2].at.Block+4 : items[3].at.Block])
			require.NoError(t, vfs.WriteFileAtomic(mem, name, content))
			_, err = maintain.Repair(context.Background(), queueDir, &maintain.RepairOptions{
				FS: mem, Now: func() time.Time { return testStart.Add(time.Hour) },
			})
			require.NoError(t, err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			const file = "0000000001-0000000001.0001.seg"
			dir := filepath.Join("testdata", "v0-"+name)
			files, items := smallQueue(t, "none", true)
			mem := sourceWith(t, files)
			rewrite(t, mem, items)
			written, err := vfs.ReadFile(mem, queueDir+"/"+file)
			require.NoError(t, err)
			if *updateFlag {
				require.NoError(t, os.MkdirAll(dir, 0o755))
				require.NoError(t, os.WriteFile(filepath.Join(dir, file), written, 0o644))
			}
			golden, err := os.ReadFile(filepath.Join(dir, file))
			require.NoError(t, err)
			require.Equal(t, hex.Dump(golden), hex.Dump(written))

			mem = sourceWith(t, map[string][]byte{file: golden, "0000000002.seg": files["0000000002.seg"]})
			requireSound(t, mem)
			r := openReader(t, mem)
			kinds := map[string]int{}
			for _, it := range items {
				document, err := r.DocumentFor(nil, []byte(it.id), it.at)
				var gone *queue.GoneError
				var lost *queue.LostError
				switch {
				case errors.As(err, &gone):
					kinds["gone"]++
				case errors.As(err, &lost):
					kinds["lost"]++
				case errors.Is(err, queue.ErrDeleted):
					kinds["deleted"]++
				default:
					require.NoError(t, err)
					require.Equal(t, it.document, string(document))
					kinds["found"]++
				}
			}
			want := map[string]map[string]int{
				"compact": {"gone": 3, "found": 5}, "repair": {"lost": 2, "found": 6},
			}
			require.Equal(t, want[name], kinds)
			assert.Equal(t, "cursor-7", string(openWriter(t, testOptions(mem)).Cursor()))
		})
	}
}

// formatPage describes the format, with examples.
const formatPage = "../docs/format/segment.md"

// TestFormatPage compares the examples in the description of the format with the written
// bytes.
func TestFormatPage(t *testing.T) {
	mem := newMem(t)
	w := openWriter(t, testOptions(mem))
	_, err := w.Append([]byte("cat"), []byte("meow"))
	require.NoError(t, err)
	_, err = w.Delete([]byte("dog"))
	require.NoError(t, err)
	w.SetCursor([]byte("line 2"))
	require.NoError(t, w.Flush())
	require.NoError(t, w.Seal())
	_, err = w.Append([]byte("cow"), []byte("moo"))
	require.NoError(t, err)
	require.NoError(t, w.Close())
	_, err = maintain.Compact(context.Background(), queueDir, &maintain.CompactOptions{
		FS: mem, MaxDead: 0.01, Now: func() time.Time { return testStart.Add(time.Hour) },
	})
	require.NoError(t, err)

	page, err := os.ReadFile(formatPage)
	require.NoError(t, err)
	var examples [][]byte
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
		if at == 0 {
			examples = append(examples, nil)
		}
		example := &examples[len(examples)-1]
		require.Equal(t, len(*example), at, "offset of the line %q", line)
		columns, _, _ := strings.Cut(rest, "  ")
		b, err := hex.DecodeString(strings.ReplaceAll(strings.TrimSpace(columns), " ", ""))
		require.NoError(t, err, "line %q", line)
		*example = append(*example, b...)
	}
	names := []string{"0000000001.seg", "0000000001-0000000001.0001.seg"}
	require.Len(t, examples, len(names))
	for i, name := range names {
		content, err := vfs.ReadFile(mem, queueDir+"/"+name)
		require.NoError(t, err)
		if !bytes.Equal(content, examples[i]) {
			require.Equal(t, hex.Dump(content), hex.Dump(examples[i]))
		}
	}
}
