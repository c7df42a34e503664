//go:build !nolzo

package lzo

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/rasky/go-lzo"
	"github.com/stretchr/testify/require"

	"docstore/internal/testseed"
)

// posting returns a typical document: text that has much in common with the others.
func posting(n int) string {
	return fmt.Sprintf(`{"id":"job-%d","title":"Senior engineer %d","description":"%s"}`,
		n, n%7, strings.Repeat("We look for engineers with years of experience. ", 4+n%3))
}

func randomBytes(random *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(random.Uint32())
	}
	return b
}

// TestBomb: a short stream with a large output is refused before it is decoded.
func TestBomb(t *testing.T) {
	// A literal, then a match whose length continues for 60,000 zero bytes.
	bomb := append([]byte{18, 'x', 32}, make([]byte, 60_000)...)
	bomb = append(bomb, 1, 0, 0, 17, 0, 0)
	n, ok := decodedBytes(bomb)
	require.True(t, ok)
	require.Equal(t, 1+31+60_000*255+1+2, n)
	out, err := lzo.Decompress1X(bytes.NewReader(bomb), len(bomb), 1)
	require.NoError(t, err)
	require.Len(t, out, n)
	_, err = coder{}.Decode(nil, bomb, 1)
	require.ErrorIs(t, err, errStream)

	larger := append([]byte{18, 'x', 32}, make([]byte, 100_000)...)
	_, ok = decodedBytes(append(larger, 1, 0, 0, 17, 0, 0))
	require.False(t, ok, "more than a document may have")
}

// TestEncoderIsNotTrusted: encoder output that does not decode to the document is not
// stored, and a panic of the encoder neither.
func TestEncoderIsNotTrusted(t *testing.T) {
	document := []byte(posting(1) + posting(1))
	other := bytes.Clone(document)
	other[len(other)-1] ^= 1
	prefix := []byte("prefix")
	for name, compress := range map[string]func([]byte) []byte{
		"another document": func([]byte) []byte { return lzo.Compress1X(other) },
		"no stream":        func(b []byte) []byte { return b[:100] },
		"cut": func(b []byte) []byte {
			stored := lzo.Compress1X(b)
			return stored[:len(stored)-1]
		},
		"panic": func(b []byte) []byte { return b[len(b)+1:] },
	} {
		out, ok := coder{}.encodeWith(compress, prefix, document)
		require.False(t, ok, name)
		require.Equal(t, "prefix", string(out), name)
	}
	out, ok := coder{}.encodeWith(lzo.Compress1X, prefix, document)
	require.True(t, ok)
	got, err := coder{}.Decode(nil, out[len(prefix):], len(document))
	require.NoError(t, err)
	require.Equal(t, document, got)
}

// TestLength compares the computed length with the decoded one.
func TestLength(t *testing.T) {
	random := testseed.Rand(t)
	for i := range 300 {
		document := []byte(posting(i))
		switch i % 4 {
		case 1:
			document = randomBytes(random, i*10)
		case 2:
			document = bytes.Repeat(document[:i%200], i)
		case 3:
			document = append(bytes.Repeat([]byte{byte(i)}, i*7), document...)
		}
		for _, stored := range [][]byte{lzo.Compress1X(document), lzo.Compress1X999(document)} {
			n, ok := decodedBytes(stored)
			require.True(t, ok, "document %d", i)
			require.Equal(t, len(document), n)
			for cut := range stored {
				_, ok = decodedBytes(stored[:cut])
				require.False(t, ok, "cut")
			}
			_, ok = decodedBytes(append(bytes.Clone(stored), 0))
			require.False(t, ok, "bytes after the end")
		}
	}
	_, ok := decodedBytes(nil)
	require.False(t, ok)
}

// FuzzDecode: a stream that decodes has the computed length, and a stream with an invalid
// length does not decode to its last byte.
func FuzzDecode(f *testing.F) {
	for i := range 4 {
		f.Add(lzo.Compress1X([]byte(posting(i))), uint16(len(posting(i))))
	}
	f.Fuzz(func(t *testing.T, stored []byte, rawBytes uint16) {
		n, ok := decodedBytes(stored)
		got, err := coder{}.Decode(nil, stored, int(rawBytes))
		if err == nil {
			require.True(t, ok)
			require.Equal(t, int(rawBytes), n)
			require.Len(t, got, n)
		}
	})
}
