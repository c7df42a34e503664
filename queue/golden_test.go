package queue_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"docstore/internal/vfs"
	"docstore/queue/codec"
	"docstore/queue/internal/dictionary"
	"docstore/queue/internal/queuetest"
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
			written := writeSmallQueue(t, codec)
			if *updateFlag {
				dir := filepath.Join("internal", "queuetest", "testdata", "v0-"+codec)
				require.NoError(t, os.MkdirAll(dir, 0o755))
				for name, content := range written {
					require.NoError(t, os.WriteFile(filepath.Join(dir, name), content, 0o644))
				}
				return
			}
			files, items := queuetest.SmallQueue(t, codec, false)
			require.Len(t, written, len(files))
			for name, content := range files {
				if codec == "none" { // compression of the others may improve
					require.Equal(t, hex.Dump(content), hex.Dump(written[name]), name)
				}
			}
			mem := queuetest.MemWith(t, files)
			r := queuetest.OpenReader(t, mem)
			queuetest.RequireItems(t, r, items)
			queuetest.RequireSound(t, mem)
			assert.Equal(t, "cursor-7", string(queuetest.OpenWriter(t, queuetest.Options(mem)).Cursor()))
		})
	}
}

// writeSmallQueue writes the golden files.
func writeSmallQueue(t *testing.T, codec string) map[string][]byte {
	mem := queuetest.NewSource(t)
	var now atomic.Int64 // in milliseconds
	opts := queuetest.Options(mem)
	opts.Codec, opts.BlockBytes, opts.DictionaryBytes = codec, 400, -1
	opts.Now = func() time.Time { return queuetest.Start.Add(time.Duration(now.Load()) * time.Millisecond) }
	w := queuetest.OpenWriter(t, opts)
	if w.Trainer().Codec.Train != nil {
		var documents [][]byte
		for i := range 64 {
			documents = append(documents, []byte(queuetest.Posting(1000+i)))
		}
		content, err := w.Trainer().Codec.Train(documents, 256)
		require.NoError(t, err)
		d, err := dictionary.New(w.Trainer().Codec, content)
		require.NoError(t, err)
		d.Sampled = segment.Run{First: 1, Last: 1}
		w.Trainer().Use(d)
		w.SetLastRaw(1 << 20)
	}
	for i, it := range queuetest.SmallItems() {
		now.Store([]int64{2, 3, 5, 7, 8, 9, 10, 11}[i])
		it.Put(t, w)
		w.SetCursor([]byte(fmt.Sprint("cursor-", i)))
		switch i {
		case 1, 2:
			require.NoError(t, w.Flush())
		case 4:
			require.NoError(t, w.Seal())
		}
	}
	require.NoError(t, w.Flush())
	files := map[string][]byte{}
	for _, name := range []string{"0000000001.seg", "0000000002.open"} {
		content, err := vfs.ReadFile(mem, queuetest.Dir+"/"+name)
		require.NoError(t, err)
		files[name] = content
	}
	return files
}

// formatPage describes the format, with examples.
const formatPage = "../docs/format/segment.md"

// TestFormatPage compares the examples in the description of the format with the written
// bytes.
func TestFormatPage(t *testing.T) {
	mem := queuetest.NewSource(t)
	opts := queuetest.Options(mem)
	opts.Now = func() time.Time { return queuetest.Start.Add(2 * time.Millisecond) }
	w := queuetest.OpenWriter(t, opts)
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
	_, err = maintain.Compact(context.Background(), queuetest.Dir, &maintain.CompactOptions{
		FS: mem, MaxDead: 0.01, Now: func() time.Time { return queuetest.Start.Add(time.Hour) },
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
		content, err := vfs.ReadFile(mem, queuetest.Dir+"/"+name)
		require.NoError(t, err)
		if !bytes.Equal(content, examples[i]) {
			require.Equal(t, hex.Dump(content), hex.Dump(examples[i]))
		}
	}
}
