package records

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/internal/testseed"
)

// TestPlainEnd compares with a byte-wise search: each byte at each place of a word, among
// all others, and random texts.
func TestPlainEnd(t *testing.T) {
	slow := func(text []byte, at int) int {
		for at < len(text) && text[at] >= 0x20 && text[at] != '"' && text[at] != '\\' {
			at++
		}
		return at
	}
	for _, other := range []byte{0x20, 0x21, 'x', 0x7f, 0x80, 0xff} {
		for c := range 256 {
			for at := range 17 {
				text := bytes.Repeat([]byte{other}, 19)
				text[at] = byte(c)
				require.Equal(t, slow(text, 0), PlainEnd(text, 0), "%q", text)
				require.Equal(t, min(slow(text, 0), 16), plainWords(text, 0), "%q", text)
			}
		}
	}
	random := testseed.Rand(t)
	for range 20_000 {
		text := make([]byte, random.IntN(40))
		for i := range text {
			text[i] = byte(0x1f + random.IntN(0x42)*random.IntN(4))
		}
		at := random.IntN(len(text) + 1)
		want := slow(text, at)
		require.Equal(t, want, PlainEnd(text, at), "%q from %d", text, at)
		require.Equal(t, min(want, at+(len(text)-at)/8*8), plainWords(text, at), "%q from %d", text, at)
	}
}
