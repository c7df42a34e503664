package codec

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/klauspost/compress/s2"
	"github.com/stretchr/testify/require"

	"docstore/internal/crashtest"
	"docstore/internal/testseed"
)

// requireAsLibrary decodes arbitrary bytes with a dictionary and compares the result with
// the library's.
func requireAsLibrary(t *testing.T, dictionary, block []byte) (valid bool) {
	decoder := s2Plain
	var want []byte
	var err error
	if len(dictionary) == 0 {
		want, err = s2.Decode(nil, block)
	} else {
		decoder = newS2Decoder(dictionary)
		want, err = s2.NewDict(dictionary).Decode(nil, block)
	}
	n, lengthErr := s2.DecodedLen(block)
	if lengthErr != nil {
		require.Error(t, err)
		n = 0
	}
	room := append(make([]byte, 0, n+100), "before"...)
	beyond := room[:cap(room)][len(room)+n:]
	for i := range beyond {
		beyond[i] = 0xa5
	}
	got, ourErr := decoder.Decode(room, block, n)
	require.Equal(t, err == nil, ourErr == nil, "the library: %v, ours: %v", err, ourErr)
	require.Equal(t, "before", string(got[:len(room)]))
	require.Equal(t, string(want), string(got[len(room):]))
	require.Equal(t, len(beyond), bytes.Count(beyond, []byte{0xa5}), "it has written past the document")
	return err == nil
}

// Long documents without a dictionary do not use the library.
func TestS2MatchesLibraryWithoutDictionary(t *testing.T) {
	random := testseed.Rand(t)
	for range crashtest.Share(100, 1000) {
		document := randomText(random, 1+random.IntN(3000))
		if random.IntN(4) == 0 {
			document = append(bytes.Repeat(document, 70_000/len(document)+1), document...)
		}
		for _, block := range [][]byte{s2.Encode(nil, document), s2.EncodeBetter(nil, document)} {
			require.True(t, requireAsLibrary(t, nil, block))
			for range 20 {
				changed := bytes.Clone(block)
				changed[random.IntN(len(changed))] = byte(random.Uint32())
				if n, err := s2.DecodedLen(changed); err == nil && n <= 1<<20 {
					requireAsLibrary(t, nil, changed)
				}
			}
		}
	}
	long := bytes.Repeat(randomText(random, 1000), 2*s2LibraryBytes/1000)
	stored, ok := s2Coder{}.Encode(nil, long)
	require.True(t, ok)
	got, err := s2Coder{}.Decode([]byte("before"), stored, len(long))
	require.NoError(t, err)
	require.Equal(t, "before"+string(long), string(got))
}

// TestS2MatchesLibrary: encoded blocks decode to the document, and for changed and cut
// blocks this decoder and the library agree.
func TestS2MatchesLibrary(t *testing.T) {
	random := testseed.Rand(t)
	valid, damaged := 0, 0
	for range crashtest.Share(300, 3000) {
		dictionary := s2.MakeDict(randomText(random, 16+random.IntN(70_000)), nil)
		document := randomText(random, 1+random.IntN(3000))
		if random.IntN(10) == 0 { // longer than the reach of the dictionary, and long repeats
			document = append(bytes.Repeat(document, 70_000/len(document)+1), document...)
		}
		for _, encode := range []func(dst, src []byte) []byte{dictionary.Encode, dictionary.EncodeBetter, dictionary.EncodeBest} {
			block := encode(nil, document)
			require.True(t, requireAsLibrary(t, dictionary.Bytes(), block))
			for range 20 {
				changed := bytes.Clone(block)
				for range 1 + random.IntN(3) {
					changed[random.IntN(len(changed))] = byte(random.Uint32())
				}
				if n, err := s2.DecodedLen(changed); err == nil && n > 1<<20 {
					continue // the library grows dst
				}
				if random.IntN(4) == 0 {
					changed = changed[:random.IntN(len(changed))]
				}
				if requireAsLibrary(t, dictionary.Bytes(), changed) {
					valid++
				} else {
					damaged++
				}
			}
		}
	}
	require.NotZero(t, valid)
	require.NotZero(t, damaged)
}

// randomText returns text with many repeated words and short runs.
func randomText(random *rand.Rand, size int) []byte {
	var text []byte
	for len(text) < size {
		switch random.IntN(8) {
		case 0:
			text = append(text, bytes.Repeat([]byte{byte(random.Uint32())}, random.IntN(100))...)
		case 1:
			text = binary.LittleEndian.AppendUint64(text, random.Uint64())
		case 2:
			if from := random.IntN(len(text) + 1); from < len(text) {
				text = append(text, text[from:min(len(text), from+random.IntN(300))]...)
			}
		default:
			text = append(text, posting(random.IntN(50))[:random.IntN(100)]...)
		}
	}
	return text[:size]
}

func FuzzS2Decode(f *testing.F) {
	dictionary := s2.MakeDict(bytes.Repeat([]byte("a dictionary of words, "), 100), nil).Bytes()
	f.Add(dictionary, s2.NewDict(dictionary).EncodeBetter(nil, []byte("words of a dictionary of words; and others, or others still, or others")))
	f.Fuzz(func(t *testing.T, dictionary, block []byte) {
		if n, err := s2.DecodedLen(block); s2.NewDict(dictionary) == nil || err == nil && n > 1<<20 {
			return
		}
		requireAsLibrary(t, dictionary, block)
	})
}
