package codec_test

import (
	"bytes"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"docstore/internal/testseed"
	"docstore/queue/codec"
	_ "docstore/queue/codec/lzo"
)

// coders returns the codecs with and without a dictionary.
func coders(t testing.TB) map[string]func() (codec.Codec, []byte) {
	all := map[string]func() (codec.Codec, []byte){}
	for _, c := range codec.All() {
		if c.ID == codec.None {
			continue
		}
		all[c.Name] = func() (codec.Codec, []byte) { return c, nil }
		if c.Train == nil {
			continue
		}
		var sample [][]byte
		for i := range 200 {
			sample = append(sample, []byte(codec.Posting(i)))
		}
		content, err := c.Train(sample, 8<<10)
		require.NoError(t, err)
		require.LessOrEqual(t, len(content), codec.MaxDictionaryBytes)
		all[c.Name+"+dictionary"] = func() (codec.Codec, []byte) { return c, content }
	}
	return all
}

func TestCodecs(t *testing.T) {
	random := testseed.Rand(t)
	for name, coder := range coders(t) {
		t.Run(name, func(t *testing.T) {
			c, dictionary := coder()
			enc, err := c.NewEncoder(dictionary)
			require.NoError(t, err)
			dec, err := c.NewDecoder(dictionary)
			require.NoError(t, err)
			prefix := []byte("prefix")
			for i, document := range [][]byte{
				{1}, []byte("ab"), []byte(codec.Posting(7)), bytes.Repeat([]byte("x"), 100_000),
				codec.RandomBytes(random, 1), codec.RandomBytes(random, 10_000), []byte(strings.Repeat(codec.Posting(3), 1000)),
				bytes.Repeat([]byte{0}, codec.MaxDocumentBytes/8),
			} {
				stored, ok := enc.Encode(prefix, document)
				require.Equal(t, prefix, stored[:len(prefix)])
				if !ok {
					continue
				}
				stored = bytes.Clone(stored[len(prefix):])
				got, err := dec.Decode(prefix, stored, len(document))
				require.NoError(t, err, "document %d", i)
				require.Equal(t, "prefix", string(got[:6]))
				require.True(t, bytes.Equal(document, got[6:]), "document %d", i)

				for _, length := range []int{len(document) - 1, len(document) + 1} {
					got, err = dec.Decode(prefix, stored, length)
					require.Error(t, err, "document %d of %d bytes decoded as one of %d", i, len(document), length)
					require.Equal(t, prefix, got)
				}
			}
		})
	}
}

// TestDecodingDamage: stored bytes are verified before they are decoded, but a decoder
// must accept any bytes without a panic or a larger output.
func TestDecodingDamage(t *testing.T) {
	random := testseed.Rand(t)
	for name, coder := range coders(t) {
		t.Run(name, func(t *testing.T) {
			c, dictionary := coder()
			enc, err := c.NewEncoder(dictionary)
			require.NoError(t, err)
			dec, err := c.NewDecoder(dictionary)
			require.NoError(t, err)
			document := []byte(codec.Posting(7) + codec.Posting(7))
			stored, ok := enc.Encode(nil, document)
			require.True(t, ok)
			for range 1500 {
				damaged := bytes.Clone(stored)
				for range 1 + random.IntN(4) {
					damaged[random.IntN(len(damaged))] = byte(random.Uint32())
				}
				damaged = damaged[:random.IntN(len(damaged)+1)]
				if random.IntN(2) == 0 {
					damaged = append(damaged, stored[len(damaged):]...)
				}
				got, err := dec.Decode(nil, damaged, len(document))
				if err == nil {
					require.Len(t, got, len(document))
				} else {
					require.Empty(t, got)
				}
			}
		})
	}
}

// TestDecoderIsConcurrent decodes in many goroutines at once.
func TestDecoderIsConcurrent(t *testing.T) {
	for name, coder := range coders(t) {
		c, dictionary := coder()
		enc, err := c.NewEncoder(dictionary)
		require.NoError(t, err)
		dec, err := c.NewDecoder(dictionary)
		require.NoError(t, err)
		var wait sync.WaitGroup
		for i := range 4 {
			document := codec.Posting(i) + codec.Posting(i)
			stored, ok := enc.Encode(nil, []byte(document))
			require.True(t, ok)
			wait.Go(func() {
				for range 50 {
					got, err := dec.Decode(nil, stored, len(document))
					assert.NoError(t, err, name)
					assert.Equal(t, document, string(got), name)
				}
			})
		}
		wait.Wait()
	}
}

func TestBadDictionaries(t *testing.T) {
	for _, c := range codec.All() {
		if c.Train == nil {
			continue
		}
		for _, dictionary := range []string{"x", "not a dictionary of any kind, and longer than sixteen bytes"} {
			_, err := c.NewDecoder([]byte(dictionary))
			if c.ID == codec.S2 && len(dictionary) > 16 {
				continue // s2 takes nearly everything
			}
			require.Error(t, err, "%s, %q", c.Name, dictionary)
		}
	}
}

func TestUnknown(t *testing.T) {
	_, err := codec.ByID(77)
	require.ErrorIs(t, err, codec.ErrUnknown)
	for _, id := range []codec.ID{codec.None, codec.LZO, codec.S2, codec.Zstd} {
		if c, err := codec.ByID(id); err == nil {
			assert.Equal(t, id.String(), c.Name)
		} else {
			require.ErrorIs(t, err, codec.ErrUnknown)
			require.ErrorContains(t, err, fmt.Sprint(id))
		}
	}
}

// FuzzCodecs: encoded documents decode to the same, and decoded output has the stated
// length.
func FuzzCodecs(f *testing.F) {
	f.Add([]byte(codec.Posting(1)))
	f.Add(bytes.Repeat([]byte("abc"), 1000))
	type pair struct {
		enc codec.Encoder
		dec codec.Decoder
	}
	pairs := map[string]pair{}
	for name, coder := range coders(f) {
		c, dictionary := coder()
		enc, err := c.NewEncoder(dictionary)
		require.NoError(f, err)
		dec, err := c.NewDecoder(dictionary)
		require.NoError(f, err)
		pairs[name] = pair{enc, dec}
	}
	f.Fuzz(func(t *testing.T, document []byte) {
		for name, p := range pairs {
			if len(document) > 0 {
				if stored, ok := p.enc.Encode(nil, document); ok {
					got, err := p.dec.Decode(nil, stored, len(document))
					require.NoError(t, err, name)
					require.True(t, bytes.Equal(document, got), name)
				}
			}
			for _, length := range []int{0, len(document), 5000} {
				if got, err := p.dec.Decode(nil, document, length); err == nil {
					require.Len(t, got, length, name)
				}
			}
		}
	})
}
