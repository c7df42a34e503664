package queue

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// dictionaryQueue writes a queue whose second segment has a dictionary if the codec
// supports one. All documents but one are compressible.
func dictionaryQueue(t testing.TB, codec string) (*Reader, []item) {
	mem := newMem(t)
	opts := testOptions(mem)
	opts.Codec, opts.dictionaryBytes, opts.BlockBytes = codec, 4<<10, 4<<10
	var items []item
	w := openWriter(t, opts)
	write := func(count int) {
		for range count {
			it := item{id: fmt.Sprint(len(items)), document: posting(len(items))}
			it.put(t, w)
			items = append(items, it)
		}
		require.NoError(t, w.Flush())
		w.trainer.running.Wait()
	}
	write(1500)
	require.NoError(t, w.Seal())
	write(500)
	raw := item{id: "raw", document: "\x00\x01\x02"}
	raw.put(t, w)
	items = append(items, raw)
	require.NoError(t, w.Close())
	return openReader(t, mem), items
}

func decodersOf(r *Reader) *Decoders {
	return NewDecoders(NewDecoderCache(1<<20), func(_ context.Context, hash DictionaryHash) ([]byte, error) { return r.Dictionary(nil, hash) })
}

func TestStoredForm(t *testing.T) {
	for _, c := range codecs {
		t.Run(c.name, func(t *testing.T) {
			r, items := dictionaryQueue(t, c.name)
			decoders := decodersOf(r)
			withDictionary := 0
			for _, it := range items {
				id := []byte(it.id)
				b, asStored, err := r.StoredFor([]byte("before"), Wanted{ID: id, Address: it.at}, BuiltCodecs())
				require.NoError(t, err)
				require.True(t, asStored)
				n, err := r.DecodedBytes(it.at)
				require.NoError(t, err)
				require.Equal(t, len(it.document), n)
				require.Equal(t, "before", string(b[:6]))
				s, err := ParseStored(b[6:], id)
				require.NoError(t, err)
				require.Equal(t, it.at, s.Address)
				if s.Dictionary != (DictionaryHash{}) {
					withDictionary++
				}
				if !s.raw() {
					require.Less(t, len(s.Bytes), len(it.document)+storedHeaderBytes)
				}
				out, err := decoders.Decode(t.Context(), []byte("before"), s)
				require.NoError(t, err)
				require.Equal(t, "before"+it.document, string(out))

				others := BuiltCodecs() &^ (1 << c.id)
				require.Equal(t, s.raw(), s.Within(others))
				b, asStored, err = r.StoredFor(nil, Wanted{ID: id, Address: it.at}, others)
				require.NoError(t, err)
				require.Equal(t, s.raw(), asStored, "a document stored raw needs no codec")
				if !asStored {
					require.Equal(t, it.document, string(b))
				}
				b, asStored, err = r.StoredFor(nil, Wanted{ID: id, Address: it.at}, 0)
				require.NoError(t, err)
				require.False(t, asStored)
				require.Equal(t, it.document, string(b))
			}
			assert.Equal(t, c.train != nil, withDictionary > 100, "%d documents with a dictionary", withDictionary)
		})
	}
	r, items := dictionaryQueue(t, "none")
	_, _, err := r.StoredFor(nil, Wanted{ID: nil, Address: items[0].at}, BuiltCodecs())
	require.ErrorIs(t, err, ErrIDEmpty)
	got, asStored, err := r.StoredFor([]byte("before"), Wanted{ID: []byte("other"), Address: items[0].at}, BuiltCodecs())
	require.ErrorIs(t, err, ErrUnavailable)
	require.False(t, asStored)
	require.Equal(t, "before", string(got))
}

// TestStoredFormDamage: any change of a stored form is detected, and so is another id.
func TestStoredFormDamage(t *testing.T) {
	for _, c := range codecs {
		r, items := dictionaryQueue(t, c.name)
		it := items[len(items)-2]
		good, _, err := r.StoredFor(nil, Wanted{ID: []byte(it.id), Address: it.at}, BuiltCodecs())
		require.NoError(t, err)
		refused := func(b []byte, id string) {
			t.Helper()
			_, err := ParseStored(b, []byte(id))
			require.True(t, errors.Is(err, ErrCorrupt) || errors.Is(err, ErrNewerVersion), "%v", err)
		}
		for i := range good {
			for _, flip := range []byte{1, 0x80, 0xff} {
				bad := bytes.Clone(good)
				bad[i] ^= flip
				refused(bad, it.id)
			}
			refused(good[:i], it.id)
		}
		refused(append(bytes.Clone(good), 0), it.id)
		refused(good, it.id+"x")
		refused(good, "")
	}
}

// FuzzParseStored: an accepted form decodes to a document of the stated length or fails,
// and no bytes lead to another dictionary than the one with the stated hash.
func FuzzParseStored(f *testing.F) {
	for _, c := range codecs {
		r, items := dictionaryQueue(f, c.name)
		for _, it := range []item{items[0], items[len(items)-2], items[len(items)-1]} {
			b, _, err := r.StoredFor(nil, Wanted{ID: []byte(it.id), Address: it.at}, BuiltCodecs())
			require.NoError(f, err)
			f.Add(b, []byte(it.id))
		}
	}
	decoders := NewDecoders(NewDecoderCache(0), func(context.Context, DictionaryHash) ([]byte, error) { return nil, errors.New("none") })
	f.Fuzz(func(t *testing.T, b, id []byte) {
		b = bytes.Clone(b)
		if len(b) >= storedHeaderBytes { // past the checksum
			little.PutUint32(b, storedCRC(documentCRCIn(b, id), b))
		}
		s, err := ParseStored(b, id)
		if err != nil {
			return
		}
		require.True(t, bytes.Equal(b, s.Bytes))
		out, err := decoders.Decode(t.Context(), nil, s)
		if s.Dictionary != (DictionaryHash{}) && !s.raw() {
			require.Error(t, err)
		}
		if err == nil {
			require.Len(t, out, int(s.rawAndFlags&rawBytesMask))
		} else {
			require.Empty(t, out)
		}
	})
}

// TestStoredPage compares the example in the format's description.
func TestStoredPage(t *testing.T) {
	mem := newMem(t)
	w := openWriter(t, testOptions(mem))
	at, err := w.Append([]byte("cat"), []byte("meow"))
	require.NoError(t, err)
	require.NoError(t, w.Flush())
	b, asStored, err := openReader(t, mem).StoredFor(nil, Wanted{ID: []byte("cat"), Address: at}, BuiltCodecs())
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
	r, items := dictionaryQueue(t, "s2")
	b, _, err := r.StoredFor(nil, Wanted{ID: []byte(items[1700].id), Address: items[1700].at}, BuiltCodecs())
	require.NoError(t, err)
	s, err := ParseStored(b, []byte(items[1700].id))
	require.NoError(t, err)
	// From an open file, and from one that is not in the cache.
	for _, reader := range []*Reader{r, openReader(t, r.options.FS)} {
		content, err := reader.Dictionary([]byte("before"), s.Dictionary)
		require.NoError(t, err)
		require.Equal(t, s.Dictionary, hashDictionary(content[len("before"):]))
		content, err = reader.Dictionary([]byte("before"), DictionaryHash{1})
		require.ErrorIs(t, err, ErrNoDictionary)
		require.Equal(t, "before", string(content))
	}
	require.NoError(t, r.Close())
	_, err = r.Dictionary(nil, s.Dictionary)
	require.ErrorIs(t, err, ErrClosed)
}

// storedWith returns a stored form that needs a dictionary, and that dictionary.
func storedWith(t *testing.T) (Stored, []byte, string) {
	r, items := dictionaryQueue(t, "s2")
	it := items[1700]
	b, _, err := r.StoredFor(nil, Wanted{ID: []byte(it.id), Address: it.at}, BuiltCodecs())
	require.NoError(t, err)
	s, err := ParseStored(b, []byte(it.id))
	require.NoError(t, err)
	content, err := r.Dictionary(nil, s.Dictionary)
	require.NoError(t, err)
	return s, content, it.document
}

// TestDecodersFetchOnce: concurrent calls fetch a dictionary once. A call whose context
// ends does not wait for it, and does not affect the others.
func TestDecodersFetchOnce(t *testing.T) {
	s, content, document := storedWith(t)
	var fetched atomic.Int64
	asked, answer := make(chan struct{}), make(chan struct{})
	d := NewDecoders(NewDecoderCache(1<<20), func(context.Context, DictionaryHash) ([]byte, error) {
		fetched.Add(1)
		close(asked)
		<-answer
		return content, nil
	})
	var running sync.WaitGroup
	decode := func() {
		out, err := d.Decode(t.Context(), nil, s)
		assert.NoError(t, err)
		assert.Equal(t, document, string(out))
	}
	running.Go(decode)
	<-asked
	for range 7 {
		running.Go(decode)
	}
	hurried, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := d.Decode(hurried, nil, s)
	require.ErrorIs(t, err, context.Canceled)
	close(answer)
	running.Wait()
	decode()
	assert.EqualValues(t, 1, fetched.Load())
}

// TestDecodersFetchIsTakenOver: if the call that fetches is canceled, the waiting calls
// fetch.
func TestDecodersFetchIsTakenOver(t *testing.T) {
	s, content, document := storedWith(t)
	var fetched atomic.Int64
	asked := make(chan struct{})
	d := NewDecoders(NewDecoderCache(1<<20), func(ctx context.Context, _ DictionaryHash) ([]byte, error) {
		if fetched.Add(1) == 1 {
			close(asked)
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return content, nil
	})
	hurried, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		_, err := d.Decode(hurried, nil, s)
		assert.ErrorIs(t, err, context.Canceled)
	})
	<-asked
	running.Go(func() {
		out, err := d.Decode(t.Context(), nil, s)
		assert.NoError(t, err)
		assert.Equal(t, document, string(out))
	})
	cancel()
	running.Wait()
	assert.EqualValues(t, 2, fetched.Load())
}

func TestDecodersRefuse(t *testing.T) {
	s, content, document := storedWith(t)
	wrong := bytes.Clone(content)
	wrong[100] ^= 1
	broken := errors.New("broken")
	var answer []byte
	var failure error
	d := NewDecoders(NewDecoderCache(1<<20), func(context.Context, DictionaryHash) ([]byte, error) { return answer, failure })
	for name, try := range map[string]struct {
		content []byte
		err     error
	}{
		"wrong byte": {wrong, nil},
		"cut":        {content[:len(content)-1], nil},
		"nothing":    {nil, nil},
		"too large":  {make([]byte, maxDictionaryBytes+1), nil},
		"failure":    {nil, broken},
	} {
		answer, failure = try.content, try.err
		out, err := d.Decode(t.Context(), []byte("before"), s)
		require.ErrorIs(t, err, ErrNoDictionary, name)
		if try.err != nil {
			require.ErrorIs(t, err, broken)
		}
		require.Equal(t, "before", string(out))
	}
	answer, failure = content, nil // failures are not cached
	out, err := d.Decode(t.Context(), nil, s)
	require.NoError(t, err)
	require.Equal(t, document, string(out))

	s.codec = 31
	_, err = d.Decode(t.Context(), nil, s)
	require.ErrorIs(t, err, ErrUnknownCodec)
}

// TestDecodersCap: beyond the limit the least recently used dictionary is evicted.
func TestDecodersCap(t *testing.T) {
	contents := map[DictionaryHash][]byte{}
	var keys []decoderKey
	for i := range 3 {
		content := bytes.Repeat([]byte{byte('a' + i), 'x', 'y'}, 1000)
		content, err := trainS2([][]byte{content}, 2000)
		require.NoError(t, err)
		contents[hashDictionary(content)] = content
		keys = append(keys, decoderKey{codecS2, hashDictionary(content)})
	}
	var fetched []DictionaryHash
	d := NewDecoders(NewDecoderCache(2*2100), func(_ context.Context, hash DictionaryHash) ([]byte, error) {
		fetched = append(fetched, hash)
		return contents[hash], nil
	})
	for _, i := range []int{0, 1, 0, 2, 0, 1} { // at 2 the least lately used is 1
		_, err := d.get(t.Context(), keys[i])
		require.NoError(t, err)
	}
	require.Equal(t, []DictionaryHash{keys[0].dictionary, keys[1].dictionary, keys[2].dictionary, keys[1].dictionary}, fetched)
	require.LessOrEqual(t, d.cache.Bytes(), int64(2*2100))
	small := NewDecoders(NewDecoderCache(0), d.fetch)
	for range 2 {
		_, err := small.get(t.Context(), keys[0])
		require.NoError(t, err)
	}
	require.Len(t, fetched, 5, "one is kept regardless of its size")
}
