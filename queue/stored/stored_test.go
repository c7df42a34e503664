package stored

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"docstore/queue/codec"
)

const exampleID = "job-1"

// example returns the form of a document with exampleID, the dictionary that it needs, if the
// codec supports them, and the document.
func example(t testing.TB, c codec.Codec) (b, dictionary []byte, document string) {
	t.Helper()
	text := func(i int) string {
		return fmt.Sprintf(`{"title":"gardener %d","text":"We are looking for a gardener with %d years of experience"}`, i*7919, i%9)
	}
	if c.Train != nil {
		var sample [][]byte
		for i := range 400 {
			sample = append(sample, []byte(text(i)))
		}
		var err error
		dictionary, err = c.Train(sample, 4<<10)
		require.NoError(t, err)
	}
	encoder, err := c.NewEncoder(dictionary)
	require.NoError(t, err)
	document = text(1000) + text(1000)
	h := Header{RawAndFlags: uint32(len(document)) | FlagRaw, Address: Address{Segment: 3, Block: 128, Index: 7}}
	b = append(make([]byte, HeaderBytes), document...)
	if encoder != nil {
		var ok bool
		b, ok = encoder.Encode(b[:HeaderBytes], []byte(document))
		require.True(t, ok)
		h.RawAndFlags &^= FlagRaw
		h.Codec = c.ID
		if dictionary != nil {
			h.Dictionary = codec.HashDictionary(dictionary)
		}
	}
	return seal(h, b, exampleID), dictionary, document
}

// seal writes the header of a form with the checksum of its document.
func seal(h Header, b []byte, id string) []byte {
	h.Put(b)
	h.DocumentCRC = documentCRC(b, []byte(id))
	h.Put(b)
	return b
}

func TestForm(t *testing.T) {
	for _, c := range codec.All() {
		b, dictionary, document := example(t, c)
		f, err := Parse(b, []byte(exampleID))
		require.NoError(t, err)
		assert.Equal(t, Address{Segment: 3, Block: 128, Index: 7}, f.Address)
		assert.Equal(t, len(document), f.RawBytes())
		assert.Equal(t, c.ID == codec.None, f.Within(0), c.Name)
		assert.True(t, f.Within(1<<c.ID))
		decoders := NewDecoders(NewDecoderCache(1<<20), func(context.Context, codec.DictionaryHash) ([]byte, error) { return dictionary, nil })
		out, err := decoders.Decode(t.Context(), []byte("before"), f)
		require.NoError(t, err)
		require.Equal(t, "before"+document, string(out))
	}
}

// TestFormDamage: any change of a stored form is detected, and so is another id.
func TestFormDamage(t *testing.T) {
	for _, c := range codec.All() {
		good, _, _ := example(t, c)
		refused := func(b []byte, id string) {
			t.Helper()
			_, err := Parse(b, []byte(id))
			require.True(t, errors.Is(err, ErrCorrupt) || errors.Is(err, ErrNewerVersion), "%v", err)
		}
		for i := range good {
			for _, flip := range []byte{1, 0x80, 0xff} {
				bad := bytes.Clone(good)
				bad[i] ^= flip
				refused(bad, exampleID)
			}
			refused(good[:i], exampleID)
		}
		refused(append(bytes.Clone(good), 0), exampleID)
		refused(good, exampleID+"x")
		refused(good, "")
	}
}

// FuzzParse: an accepted form decodes to a document of the stated length or fails,
// and no bytes lead to another dictionary than the one with the stated hash.
func FuzzParse(f *testing.F) {
	for _, c := range codec.All() {
		b, _, _ := example(f, c)
		f.Add(b, []byte(exampleID))
	}
	decoders := NewDecoders(NewDecoderCache(0), func(context.Context, codec.DictionaryHash) ([]byte, error) { return nil, errors.New("none") })
	f.Fuzz(func(t *testing.T, b, id []byte) {
		b = bytes.Clone(b)
		if len(b) >= HeaderBytes { // past the checksum
			little.PutUint32(b, formCRC(documentCRC(b, id), b))
		}
		s, err := Parse(b, id)
		if err != nil {
			return
		}
		require.True(t, bytes.Equal(b, s.Bytes))
		out, err := decoders.Decode(t.Context(), nil, s)
		if s.Dictionary != (codec.DictionaryHash{}) && !s.raw() {
			require.Error(t, err)
		}
		if err == nil {
			require.Len(t, out, s.RawBytes())
		} else {
			require.Empty(t, out)
		}
	})
}

// formWith returns a form that needs a dictionary, that dictionary and the document.
func formWith(t *testing.T) (Form, []byte, string) {
	t.Helper()
	c, err := codec.ByID(codec.S2)
	require.NoError(t, err)
	b, dictionary, document := example(t, c)
	f, err := Parse(b, []byte(exampleID))
	require.NoError(t, err)
	return f, dictionary, document
}

// TestDecodersFetchOnce: concurrent calls fetch a dictionary once. A call whose context
// ends does not wait for it, and does not affect the others.
func TestDecodersFetchOnce(t *testing.T) {
	s, content, document := formWith(t)
	var fetched atomic.Int64
	asked, answer := make(chan struct{}), make(chan struct{})
	d := NewDecoders(NewDecoderCache(1<<20), func(context.Context, codec.DictionaryHash) ([]byte, error) {
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
	s, content, document := formWith(t)
	var fetched atomic.Int64
	asked := make(chan struct{})
	d := NewDecoders(NewDecoderCache(1<<20), func(ctx context.Context, _ codec.DictionaryHash) ([]byte, error) {
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
	s, content, document := formWith(t)
	wrong := bytes.Clone(content)
	wrong[100] ^= 1
	broken := errors.New("broken")
	var answer []byte
	var failure error
	d := NewDecoders(NewDecoderCache(1<<20), func(context.Context, codec.DictionaryHash) ([]byte, error) { return answer, failure })
	for name, try := range map[string]struct {
		content []byte
		err     error
	}{
		"wrong byte": {wrong, nil},
		"cut":        {content[:len(content)-1], nil},
		"nothing":    {nil, nil},
		"too large":  {make([]byte, codec.MaxDictionaryBytes+1), nil},
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
	require.ErrorIs(t, err, codec.ErrUnknown)
}

// TestDecodersCap: beyond the limit the least recently used dictionary is evicted.
func TestDecodersCap(t *testing.T) {
	c, err := codec.ByID(codec.S2)
	require.NoError(t, err)
	contents := map[codec.DictionaryHash][]byte{}
	var keys []Key
	for i := range 3 {
		content := bytes.Repeat([]byte{byte('a' + i), 'x', 'y'}, 1000)
		content, err := c.Train([][]byte{content}, 2000)
		require.NoError(t, err)
		contents[codec.HashDictionary(content)] = content
		keys = append(keys, Key{codec.S2, codec.HashDictionary(content)})
	}
	var fetched []codec.DictionaryHash
	d := NewDecoders(NewDecoderCache(2*2100), func(_ context.Context, hash codec.DictionaryHash) ([]byte, error) {
		fetched = append(fetched, hash)
		return contents[hash], nil
	})
	for _, i := range []int{0, 1, 0, 2, 0, 1} { // at 2 the least lately used is 1
		_, err := d.get(t.Context(), keys[i])
		require.NoError(t, err)
	}
	require.Equal(t, []codec.DictionaryHash{keys[0].Dictionary, keys[1].Dictionary, keys[2].Dictionary, keys[1].Dictionary}, fetched)
	require.LessOrEqual(t, d.cache.Bytes(), int64(2*2100))
	small := NewDecoders(NewDecoderCache(0), d.fetch)
	for range 2 {
		_, err := small.get(t.Context(), keys[0])
		require.NoError(t, err)
	}
	require.Len(t, fetched, 5, "one is kept regardless of its size")
}
