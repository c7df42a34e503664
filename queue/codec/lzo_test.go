//go:build !nolzo

package codec

import (
	"bytes"
	"testing"

	"github.com/rasky/go-lzo"
	"github.com/stretchr/testify/require"

	"docstore/internal/testseed"
)

// TestLZOBomb: a short stream with a large output is refused before it is decoded.
func TestLZOBomb(t *testing.T) {
	// A literal, then a match whose length continues for 60,000 zero bytes.
	bomb := append([]byte{18, 'x', 32}, make([]byte, 60_000)...)
	bomb = append(bomb, 1, 0, 0, 17, 0, 0)
	n, ok := lzoDecodedBytes(bomb)
	require.True(t, ok)
	require.Equal(t, 1+31+60_000*255+1+2, n)
	out, err := lzo.Decompress1X(bytes.NewReader(bomb), len(bomb), 1)
	require.NoError(t, err)
	require.Len(t, out, n)
	_, err = lzoCoder{}.Decode(nil, bomb, 1)
	require.ErrorIs(t, err, errLZO)

	larger := append([]byte{18, 'x', 32}, make([]byte, 100_000)...)
	_, ok = lzoDecodedBytes(append(larger, 1, 0, 0, 17, 0, 0))
	require.False(t, ok, "more than a document may have")
}

// TestLZOEncoderIsNotTrusted: encoder output that does not decode to the document is not
// stored, and a panic of the encoder neither.
func TestLZOEncoderIsNotTrusted(t *testing.T) {
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
		out, ok := lzoCoder{}.encodeWith(compress, prefix, document)
		require.False(t, ok, name)
		require.Equal(t, "prefix", string(out), name)
	}
	out, ok := lzoCoder{}.encodeWith(lzo.Compress1X, prefix, document)
	require.True(t, ok)
	got, err := lzoCoder{}.Decode(nil, out[len(prefix):], len(document))
	require.NoError(t, err)
	require.Equal(t, document, got)
}

// TestLZOLength compares the computed length with the decoded one.
func TestLZOLength(t *testing.T) {
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
			n, ok := lzoDecodedBytes(stored)
			require.True(t, ok, "document %d", i)
			require.Equal(t, len(document), n)
			for cut := range stored {
				_, ok = lzoDecodedBytes(stored[:cut])
				require.False(t, ok, "cut")
			}
			_, ok = lzoDecodedBytes(append(bytes.Clone(stored), 0))
			require.False(t, ok, "bytes after the end")
		}
	}
	_, ok := lzoDecodedBytes(nil)
	require.False(t, ok)
}

// FuzzLZO: a stream that decodes has the computed length, and a stream with an invalid
// length does not decode to its last byte.
func FuzzLZO(f *testing.F) {
	for i := range 4 {
		f.Add(lzo.Compress1X([]byte(posting(i))), uint16(len(posting(i))))
	}
	f.Fuzz(func(t *testing.T, stored []byte, rawBytes uint16) {
		n, ok := lzoDecodedBytes(stored)
		got, err := lzoCoder{}.Decode(nil, stored, int(rawBytes))
		if err == nil {
			require.True(t, ok)
			require.Equal(t, int(rawBytes), n)
			require.Len(t, got, n)
		}
	})
}
