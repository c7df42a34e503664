package codec

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/klauspost/compress/s2"
	"github.com/stretchr/testify/require"

	"docstore/internal/crashtest"
	"docstore/internal/testseed"
)

// requireS2RoundTrip encodes a document and decodes it with both decoders.
func requireS2RoundTrip(t *testing.T, dictionary, document []byte) (block []byte) {
	block = newS2Encoder(dictionary).Encode([]byte("before"), document)
	require.Equal(t, "before", string(block[:6]))
	block = block[6:]
	got, err := s2.NewDict(dictionary).Decode(nil, block)
	require.NoError(t, err)
	require.True(t, bytes.Equal(document, got))
	require.True(t, requireAsLibrary(t, dictionary, block))
	require.LessOrEqual(t, len(block), s2.MaxEncodedLen(len(document)))
	return block
}

// TestS2EncoderRoundTrips encodes random documents with random dictionaries.
func TestS2EncoderRoundTrips(t *testing.T) {
	random := testseed.Rand(t)
	for range crashtest.Share(200, 2000) {
		dictionary := s2.MakeDict(randomText(random, 16+random.IntN(70_000)), nil).Bytes()
		document := randomText(random, random.IntN(3000))
		switch random.IntN(10) {
		case 0: // parts of the dictionary, in and out of reach
			for len(document) < 60_000 {
				from := random.IntN(len(dictionary))
				document = append(document, dictionary[from:min(len(dictionary), from+random.IntN(4000))]...)
			}
			document = document[:min(len(document), s2MaxOptimal)]
		case 1:
			document = bytes.Repeat([]byte{'a'}, random.IntN(s2MaxOptimal+1))
		case 2:
			document = randomText(random, s2MaxOptimal)
		}
		requireS2RoundTrip(t, dictionary, document)
	}
}

// TestS2MatchesAreEqualBytes compares each match, also those that the plan does not choose,
// with the bytes that it copies.
func TestS2MatchesAreEqualBytes(t *testing.T) {
	random := testseed.Rand(t)
	for range 10 {
		dictionary := s2.MakeDict(randomText(random, 16+random.IntN(10_000)), nil).Bytes()
		e, s := newS2Encoder(dictionary), new(s2Scratch)
		document := randomText(random, random.IntN(2000))
		for range 20 {
			from := random.IntN(len(e.dictionary))
			document = append(document, e.dictionary[from:min(len(e.dictionary), from+random.IntN(100))]...)
			from = random.IntN(len(document) + 1)
			document = append(document, document[from:min(len(document), from+random.IntN(100))]...)
		}
		e.match(s, document)
		last := s2Match{}
		for i, m := range s.matches {
			begin, n := int(m.begin), int(m.end-m.begin)
			require.LessOrEqual(t, last.end, m.end)
			require.True(t, i < 2 || last.begin < m.begin, "match %d", i)
			last = m
			source, from := document, begin-int(m.offset)
			if from < 0 {
				source, from = e.dictionary, from+len(e.dictionary)
			}
			if !bytes.Equal(source[from:from+n], document[begin:begin+n]) {
				require.FailNow(t, "not a match", "%d bytes at %d, offset %d", n, begin, m.offset)
			}
		}
		require.Equal(t, s2Match{}, s.matches[0])
		require.Equal(t, s2Match{begin: uint16(len(document)), end: uint16(len(document))}, last)
	}
}

// s2MatchAt returns the match at a position.
func s2MatchAt(matches []s2Match, at int) s2Match {
	for _, m := range slices.Backward(matches) {
		if int(m.begin) <= at {
			return m
		}
	}
	return s2Match{}
}

// TestS2LongerMatchInsideAMatch: the dictionary has the beginning of a document and, in
// another place, all but its first bytes. The second match is found inside the first one,
// where the search is not repeated at each position, and extended to its beginning.
func TestS2LongerMatchInsideAMatch(t *testing.T) {
	random := testseed.Rand(t)
	document := make([]byte, 60)
	filler := make([]byte, 100)
	for i := range filler {
		filler[i] = byte(128 + random.IntN(128))
	}
	for i := range document {
		document[i] = byte(i)
	}
	for first := 1; first < 20; first++ {
		content := slices.Concat(filler, document[:40], filler, document[first:], filler)
		e, s := newS2Encoder(s2.MakeDict(content, nil).Bytes()), new(s2Scratch)
		e.match(s, document)
		for at := first; at < len(document); at++ {
			require.Equal(t, len(document), int(s2MatchAt(s.matches, at).end), "at %d, second match from %d", at, first)
		}
	}
}

// TestS2EncoderLengths encodes literals and repeats of all lengths at which their encoding
// changes.
func TestS2EncoderLengths(t *testing.T) {
	dictionary := s2.MakeDict(bytes.Repeat([]byte("0123456789abcdef"), 4), nil).Bytes()
	noise := make([]byte, s2MaxOptimal)
	random := testseed.Rand(t)
	for i := range noise {
		noise[i] = byte(random.Uint32())
	}
	for _, limit := range []int{0, 1, 4, 8, 11, 60, 64, 68, 72, 256, 263, 264, 260 + 64, 328, 1024, 1<<16 - 1} {
		for n := max(0, limit-3); n <= min(limit+3, s2MaxOptimal); n++ {
			requireS2RoundTrip(t, dictionary, noise[:n])
			requireS2RoundTrip(t, dictionary, bytes.Repeat([]byte("x"), n))
			requireS2RoundTrip(t, dictionary, append(bytes.Repeat([]byte("0123456789"), n/10), noise[:min(n%10, 5)]...))
		}
	}
}

// TestS2MatchAcrossSearchLimit: a match that is longer than a search finds is continued.
func TestS2MatchAcrossSearchLimit(t *testing.T) {
	random := testseed.Rand(t)
	content := make([]byte, 20*s2MaxSearched)
	for i := range content {
		content[i] = byte(random.Uint32())
	}
	dictionary := s2.MakeDict(content, nil).Bytes()
	e, s := newS2Encoder(dictionary), new(s2Scratch)
	document := content[100 : 100+10*s2MaxSearched]
	e.match(s, document)
	for at := range len(document) - s2MaxSearched {
		require.Greater(t, int(s2MatchAt(s.matches, at).end)-at, s2MaxSearched/s2SearchShare-1, "at %d", at)
	}
	requireS2RoundTrip(t, dictionary, document)
}

// TestS2PlanIsCheapest compares the planned elements with the cheapest of all sequences of
// elements for random matches.
func TestS2PlanIsCheapest(t *testing.T) {
	random := testseed.Rand(t)
	for range 5000 {
		matches, n := randomS2Matches(random)
		s := &s2Scratch{matches: matches}
		s.plan()
		cheapest := cheapestS2(matches, n)
		require.Equal(t, cheapest[0][0], s.copied[0].cost, "%v", matches)
		planned, at := int32(0), 0
		for rest := s.copied[0]; at < n; rest = s.copied[rest.match] {
			from, m := int(rest.from), matches[rest.match]
			if at < from {
				planned += 1 + s2LiteralCost + int32(from-at)
			}
			require.Equal(t, s2MatchAt(matches, from), m)
			if at = int(m.end); from < at {
				require.GreaterOrEqual(t, at-from, s2MinMatch)
				planned += s2CostOfCopy(at-from, int(m.offset))
			}
		}
		require.Equal(t, cheapest[0][0], planned, "%v", matches)
	}
}

// randomS2Matches returns the matches of a document of n bytes, between two empty ones.
func randomS2Matches(random *rand.Rand) (matches []s2Match, n int) {
	matches = append(matches, s2Match{})
	begin, end := 0, 0
	for range random.IntN(8) {
		if len(matches) > 1 {
			begin += 1
		}
		begin += random.IntN(1 + random.IntN(30))
		end = max(begin+s2MinMatch, end) + random.IntN(1+random.IntN(1+random.IntN(150)))
		matches = append(matches, s2Match{uint16(begin), uint16(end), uint16(1 + random.IntN(2)*3000)})
	}
	n = end + random.IntN(10)
	return append(matches, s2Match{begin: uint16(n), end: uint16(n)}), n
}

// cheapestS2 returns the costs of the rest from each position: if the element before has
// ended, and if it is a literal.
func cheapestS2(matches []s2Match, n int) [][2]int32 {
	costs := make([][2]int32, n+1)
	for at := n - 1; at >= 0; at-- {
		literal := 1 + costs[at+1][1]
		costs[at] = [2]int32{literal + 1 + s2LiteralCost, literal}
		if m := s2MatchAt(matches, at); int(m.end)-at >= s2MinMatch {
			asCopy := s2CostOfCopy(int(m.end)-at, int(m.offset)) + costs[m.end][0]
			costs[at] = [2]int32{min(costs[at][0], asCopy), min(costs[at][1], asCopy)}
		}
	}
	return costs
}

// TestS2EncoderIsSmaller compares the stored bytes and the elements of records with the
// library's encoder.
func TestS2EncoderIsSmaller(t *testing.T) {
	var sample, documents [][]byte
	for i := range 4000 {
		if i%2 == 0 {
			sample = append(sample, []byte(posting(i)))
		} else {
			documents = append(documents, []byte(posting(i)))
		}
	}
	dictionary, err := trainS2(sample, 64<<10)
	require.NoError(t, err)
	library, own := s2.NewDict(dictionary), newS2Encoder(dictionary)
	var libraryBytes, ownBytes, libraryElements, ownElements int
	for _, d := range documents {
		block := library.EncodeBetter(nil, d)
		libraryBytes, libraryElements = libraryBytes+len(block), libraryElements+countS2Elements(block)
		block = own.Encode(nil, d)
		ownBytes, ownElements = ownBytes+len(block), ownElements+countS2Elements(block)
	}
	t.Logf("library: %d bytes, %d elements; own: %d bytes, %d elements", libraryBytes, libraryElements, ownBytes, ownElements)
	require.Less(t, ownBytes, libraryBytes)
	require.Less(t, ownElements, libraryElements)
}

func countS2Elements(block []byte) (n int) {
	_, from := binary.Uvarint(block)
	for ; from < len(block); n++ {
		tag := block[from]
		if tag&3 != s2Literal {
			_, _, from = s2Copy(block, from, 1)
			continue
		}
		length := int(tag>>2) + 1
		if from++; length > s2MaxShortLiteral {
			length, from = s2LiteralLength(block, from, length-s2MaxShortLiteral)
		}
		from += length
	}
	return n
}

// TestS2LongDocumentsUseTheLibrary: positions of longer documents do not fit 16 bits.
func TestS2LongDocumentsUseTheLibrary(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	dictionary := s2.MakeDict(randomText(random, 1<<16), nil).Bytes()
	enc, err := s2Codec.NewEncoder(dictionary)
	require.NoError(t, err)
	dec, err := s2Codec.NewDecoder(dictionary)
	require.NoError(t, err)
	for _, n := range []int{math.MaxUint16 - 1, math.MaxUint16, math.MaxUint16 + 1, 1 << 20} {
		document := randomText(random, n)
		block, ok := enc.Encode(nil, document)
		require.True(t, ok)
		got, err := dec.Decode(nil, block, n)
		require.NoError(t, err)
		require.True(t, bytes.Equal(document, got))
	}
}

func FuzzS2Encode(f *testing.F) {
	dictionary := s2.MakeDict(bytes.Repeat([]byte("a dictionary of words, "), 100), nil).Bytes()
	f.Add(dictionary, []byte("words of a dictionary of words; and others, or others still, or others"))
	f.Add(dictionary, []byte{})
	f.Fuzz(func(t *testing.T, dictionary, document []byte) {
		if s2.NewDict(dictionary) == nil || len(document) > s2MaxOptimal {
			return
		}
		requireS2RoundTrip(t, dictionary, document)
	})
}
