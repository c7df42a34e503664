package queue

import (
	"bytes"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"docstore/internal/testseed"
)

// coders returns the codecs with and without a dictionary.
func coders(t testing.TB) map[string]func() (codec, []byte) {
	all := map[string]func() (codec, []byte){}
	for _, c := range codecs {
		if c.id == codecNone {
			continue
		}
		all[c.name] = func() (codec, []byte) { return c, nil }
		if c.train == nil {
			continue
		}
		var sample [][]byte
		for i := range 200 {
			sample = append(sample, []byte(posting(i)))
		}
		content, err := c.train(sample, 8<<10)
		require.NoError(t, err)
		require.LessOrEqual(t, len(content), maxDictionaryBytes)
		all[c.name+"+dictionary"] = func() (codec, []byte) { return c, content }
	}
	return all
}

func TestCodecs(t *testing.T) {
	random := testseed.Rand(t)
	for name, coder := range coders(t) {
		t.Run(name, func(t *testing.T) {
			c, dictionary := coder()
			enc, err := c.newEncoder(dictionary)
			require.NoError(t, err)
			dec, err := c.newDecoder(dictionary)
			require.NoError(t, err)
			prefix := []byte("prefix")
			for i, document := range [][]byte{
				{1}, []byte("ab"), []byte(posting(7)), bytes.Repeat([]byte("x"), 100_000),
				randomBytes(random, 1), randomBytes(random, 10_000), []byte(strings.Repeat(posting(3), 1000)),
				bytes.Repeat([]byte{0}, MaxDocumentBytes/8),
			} {
				stored, ok := enc.encode(prefix, document)
				require.Equal(t, prefix, stored[:len(prefix)])
				if !ok {
					continue
				}
				stored = bytes.Clone(stored[len(prefix):])
				got, err := dec.decode(prefix, stored, len(document))
				require.NoError(t, err, "document %d", i)
				require.Equal(t, "prefix", string(got[:6]))
				require.True(t, bytes.Equal(document, got[6:]), "document %d", i)

				for _, length := range []int{len(document) - 1, len(document) + 1} {
					got, err = dec.decode(prefix, stored, length)
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
			enc, err := c.newEncoder(dictionary)
			require.NoError(t, err)
			dec, err := c.newDecoder(dictionary)
			require.NoError(t, err)
			document := []byte(posting(7) + posting(7))
			stored, ok := enc.encode(nil, document)
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
				got, err := dec.decode(nil, damaged, len(document))
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
		enc, err := c.newEncoder(dictionary)
		require.NoError(t, err)
		dec, err := c.newDecoder(dictionary)
		require.NoError(t, err)
		var wait sync.WaitGroup
		for i := range 4 {
			document := posting(i) + posting(i)
			stored, ok := enc.encode(nil, []byte(document))
			require.True(t, ok)
			wait.Go(func() {
				for range 50 {
					got, err := dec.decode(nil, stored, len(document))
					assert.NoError(t, err, name)
					assert.Equal(t, document, string(got), name)
				}
			})
		}
		wait.Wait()
	}
}

func TestBadDictionaries(t *testing.T) {
	for _, c := range []codec{s2Codec, zstdCodec} {
		for _, dictionary := range []string{"x", "not a dictionary of any kind, and longer than sixteen bytes"} {
			_, err := c.newDecoder([]byte(dictionary))
			if c.id == codecS2 && len(dictionary) > 16 {
				continue // s2 takes nearly everything
			}
			require.Error(t, err, "%s, %q", c.name, dictionary)
		}
	}
}

func TestUnknownCodec(t *testing.T) {
	files, items := smallQueue(t, "none", true)
	content := bytes.Clone(files["0000000001.seg"])
	content[36] = 77
	little.PutUint32(content[8:], crcOf(content[12:headerBytes]))
	mem := memWith(t, map[string][]byte{"0000000001.seg": content})
	r := openReader(t, mem)
	got, err := r.Document(nil, items[0].at)
	require.NoError(t, err, "stored raw, so any build can read it")
	require.Equal(t, items[0].document, string(got))

	infos, err := r.Segments()
	require.NoError(t, err)
	assert.Equal(t, "codec 77", infos[0].Codec)

	_, err = codecByID(77)
	require.ErrorIs(t, err, ErrUnknownCodec)
	for _, id := range []codecID{codecNone, codecLZO, codecS2, codecZstd} {
		if c, err := codecByID(id); err == nil {
			assert.Equal(t, id.String(), c.name)
		} else {
			require.ErrorIs(t, err, ErrUnknownCodec)
			require.ErrorContains(t, err, fmt.Sprint(id))
		}
	}
}
