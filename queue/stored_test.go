package queue_test

import (
	"context"
	"encoding/hex"
	"fmt"
	"os"
	"strings"
	"testing"

	"docstore/internal/vfs"
	"docstore/queue"
	"docstore/queue/codec"
	"docstore/queue/internal/queuetest"
	"docstore/queue/maintain"
	"docstore/queue/stored"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// dictionaryQueue writes a queue whose second segment has a dictionary if the codec
// supports one. All documents but one are compressible.
func dictionaryQueue(t testing.TB, codec string) (*vfs.Mem, []queuetest.Item) {
	mem := queuetest.NewMem(t)
	opts := queuetest.Options(mem)
	opts.Codec, opts.DictionaryBytes, opts.BlockBytes = codec, 4<<10, 4<<10
	var items []queuetest.Item
	w := queuetest.OpenWriter(t, opts)
	write := func(count int) {
		for range count {
			it := queuetest.Item{ID: fmt.Sprint(len(items)), Document: queuetest.Posting(len(items))}
			it.Put(t, w)
			items = append(items, it)
		}
		require.NoError(t, w.Flush())
		w.Trainer().Wait()
	}
	write(1500)
	require.NoError(t, w.Seal())
	write(500)
	raw := queuetest.Item{ID: "raw", Document: "\x00\x01\x02"}
	raw.Put(t, w)
	items = append(items, raw)
	require.NoError(t, w.Close())
	return mem, items
}

func decodersOf(r *queue.Reader) *stored.Decoders {
	return stored.NewDecoders(stored.NewDecoderCache(1<<20), func(_ context.Context, hash codec.DictionaryHash) ([]byte, error) { return r.Dictionary(nil, hash) })
}

func TestStoredForm(t *testing.T) {
	for _, c := range codec.All() {
		t.Run(c.Name, func(t *testing.T) {
			mem, items := dictionaryQueue(t, c.Name)
			r := queuetest.OpenReader(t, mem)
			decoders := decodersOf(r)
			withDictionary := 0
			for _, it := range items {
				id := []byte(it.ID)
				b, asStored, err := r.StoredFor([]byte("before"), queue.Wanted{ID: id, Address: it.At}, codec.Built())
				require.NoError(t, err)
				require.True(t, asStored)
				n, err := r.DecodedBytes(it.At)
				require.NoError(t, err)
				require.Equal(t, len(it.Document), n)
				require.Equal(t, "before", string(b[:6]))
				s, err := stored.Parse(b[6:], id)
				require.NoError(t, err)
				require.Equal(t, it.At, s.Address)
				if s.Dictionary != (codec.DictionaryHash{}) {
					withDictionary++
				}
				if !s.Within(0) {
					require.Less(t, len(s.Bytes), len(it.Document)+stored.HeaderBytes)
				}
				out, err := decoders.Decode(t.Context(), []byte("before"), s)
				require.NoError(t, err)
				require.Equal(t, "before"+it.Document, string(out))

				others := codec.Built() &^ (1 << c.ID)
				require.Equal(t, s.Within(0), s.Within(others))
				b, asStored, err = r.StoredFor(nil, queue.Wanted{ID: id, Address: it.At}, others)
				require.NoError(t, err)
				require.Equal(t, s.Within(0), asStored, "a document stored raw needs no codec")
				if !asStored {
					require.Equal(t, it.Document, string(b))
				}
				b, asStored, err = r.StoredFor(nil, queue.Wanted{ID: id, Address: it.At}, 0)
				require.NoError(t, err)
				require.False(t, asStored)
				require.Equal(t, it.Document, string(b))
			}
			assert.Equal(t, c.Train != nil, withDictionary > 100, "%d documents with a dictionary", withDictionary)
		})
	}
	mem, items := dictionaryQueue(t, "none")
	r := queuetest.OpenReader(t, mem)
	_, _, err := r.StoredFor(nil, queue.Wanted{ID: nil, Address: items[0].At}, codec.Built())
	require.ErrorIs(t, err, queue.ErrIDEmpty)
	got, asStored, err := r.StoredFor([]byte("before"), queue.Wanted{ID: []byte("other"), Address: items[0].At}, codec.Built())
	require.ErrorIs(t, err, queue.ErrUnavailable)
	require.False(t, asStored)
	require.Equal(t, "before", string(got))
}

// TestStoredPage compares the example in the format's description.
func TestStoredPage(t *testing.T) {
	mem := queuetest.NewMem(t)
	w := queuetest.OpenWriter(t, queuetest.Options(mem))
	at, err := w.Append([]byte("cat"), []byte("meow"))
	require.NoError(t, err)
	require.NoError(t, w.Flush())
	b, asStored, err := queuetest.OpenReader(t, mem).StoredFor(nil, queue.Wanted{ID: []byte("cat"), Address: at}, codec.Built())
	require.NoError(t, err)
	require.True(t, asStored)
	page, err := os.ReadFile("../docs/format/stored.md")
	require.NoError(t, err)
	var example []string
	for line := range strings.Lines(string(page)) {
		if len(line) > 10 && line[8:10] == "  " && strings.HasPrefix(line, "000000") {
			columns, _, _ := strings.Cut(line[10:], "  ")
			example = append(example, strings.TrimSpace(columns))
		}
	}
	want := strings.ReplaceAll(strings.Join(example, ""), " ", "")
	require.Equal(t, hex.EncodeToString(b), want)
}

func TestReaderDictionary(t *testing.T) {
	mem, items := dictionaryQueue(t, "s2")
	r := queuetest.OpenReader(t, mem)
	b, _, err := r.StoredFor(nil, queue.Wanted{ID: []byte(items[1700].ID), Address: items[1700].At}, codec.Built())
	require.NoError(t, err)
	s, err := stored.Parse(b, []byte(items[1700].ID))
	require.NoError(t, err)
	// From an open file, and from one that is not in the cache.
	for _, reader := range []*queue.Reader{r, queuetest.OpenReader(t, mem)} {
		content, err := reader.Dictionary([]byte("before"), s.Dictionary)
		require.NoError(t, err)
		require.Equal(t, s.Dictionary, codec.HashDictionary(content[len("before"):]))
		content, err = reader.Dictionary([]byte("before"), codec.DictionaryHash{1})
		require.ErrorIs(t, err, queue.ErrNoDictionary)
		require.Equal(t, "before", string(content))
	}
	require.NoError(t, r.Close())
	_, err = r.Dictionary(nil, s.Dictionary)
	require.ErrorIs(t, err, queue.ErrClosed)
}

// The cursor of a block is that after its last record, also in a sealed segment and a rewrite.
func TestBlockCursor(t *testing.T) {
	mem := queuetest.NewMem(t)
	w := queuetest.OpenWriter(t, queuetest.Options(mem))
	cursors := map[queue.Address]string{}
	for n := range 6 {
		for range 2 { // a block
			w.SetCursor(fmt.Append(nil, "before ", n))
			it := queuetest.Item{ID: fmt.Sprint(len(cursors)), Document: "document"}
			it.Put(t, w)
		}
		at, err := w.Append(fmt.Append(nil, "last ", n), []byte("document"))
		require.NoError(t, err)
		w.SetCursor(fmt.Append(nil, "line ", n))
		require.NoError(t, w.Flush())
		cursors[at] = fmt.Sprint("line ", n)
		if n == 3 {
			require.NoError(t, w.Seal())
		}
	}
	require.NoError(t, w.Close())
	check := func() {
		t.Helper()
		r := queuetest.OpenReader(t, mem)
		for at, want := range cursors {
			got, err := r.BlockCursor(at)
			require.NoError(t, err)
			require.Equal(t, want, string(got), at)
		}
		for _, none := range []queue.Address{{Segment: 1, Block: 1}, {Segment: 9}, {Segment: 2, Block: 1 << 20}} {
			_, err := r.BlockCursor(none)
			require.Error(t, err, none)
		}
	}
	check()
	_, err := maintain.Compact(t.Context(), queuetest.Dir, &maintain.CompactOptions{FS: mem, MaxDead: 1, EraseDead: true, DeleteOriginals: true})
	require.NoError(t, err)
	check()
}
