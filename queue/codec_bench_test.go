package queue_test

import (
	"bytes"
	"fmt"
	"testing"

	"docstore/queue/codec"
	"docstore/queue/internal/dictionary"
	"docstore/queue/internal/segment"

	"github.com/stretchr/testify/require"
)

// benchDictionary trains a dictionary as the writer does from a segment; nil if the codec
// takes none.
func benchDictionary(b *testing.B, c codec.Codec, documents [][]byte) []byte {
	if c.Train == nil {
		return nil
	}
	s := dictionary.NewSample(dictionary.SampleShare * dictionary.DefaultBytes)
	for _, d := range documents {
		s.Add(1, d)
	}
	dictionary, err := c.Train(s.Documents, dictionary.DefaultBytes)
	require.NoError(b, err)
	return dictionary
}

// benchEncode measures an encoder alone, one document at a time on one processor, and
// reports the compression ratio.
func benchEncode(b *testing.B, enc codec.Encoder, documents [][]byte) {
	b.ReportAllocs()
	var out []byte
	var raw, stored int
	for i := 0; b.Loop(); i++ {
		d := documents[i%len(documents)]
		out, _ = segment.AppendEncoded(enc, out[:0], d)
		raw, stored = raw+len(d), stored+len(out)
	}
	b.ReportMetric(float64(stored)/float64(raw), "stored/raw")
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(raw)*1024, "ns/KiB")
}

// BenchmarkCodec is the table in docs/ingest.md: each codec, with a dictionary
// and without.
func BenchmarkCodec(b *testing.B) {
	documents, _ := benchDocuments(b)
	for _, name := range codec.Names() {
		c, err := codec.ByName(name)
		require.NoError(b, err)
		dictionaries := [][]byte{nil}
		if d := benchDictionary(b, c, documents); d != nil {
			dictionaries = append(dictionaries, d)
		}
		for _, dictionary := range dictionaries {
			enc, err := c.NewEncoder(dictionary)
			require.NoError(b, err)
			dec, err := c.NewDecoder(dictionary)
			require.NoError(b, err)
			name := fmt.Sprintf("codec=%s/dictionary=%dK", name, len(dictionary)>>10)
			b.Run(name+"/op=encode", func(b *testing.B) { benchEncode(b, enc, documents) })
			b.Run(name+"/op=decode", func(b *testing.B) { benchDecode(b, enc, dec, documents) })
		}
	}
}

func benchDecode(b *testing.B, enc codec.Encoder, dec codec.Decoder, documents [][]byte) {
	type stored struct {
		bytes []byte
		raw   bool
	}
	all := make([]stored, len(documents))
	for i, d := range documents {
		all[i].bytes, all[i].raw = segment.AppendEncoded(enc, nil, d)
	}
	b.ReportAllocs()
	var out []byte
	var raw int
	for i := 0; b.Loop(); i++ {
		n := i * 7919 % len(all)
		if s := all[n]; s.raw {
			out = append(out[:0], s.bytes...)
		} else {
			var err error
			if out, err = dec.Decode(out[:0], s.bytes, len(documents[n])); err != nil {
				b.Fatal(err)
			}
		}
		raw += len(out)
		if !bytes.Equal(out, documents[n]) {
			b.Fatal("wrong document")
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(raw)*1024, "ns/KiB")
}
