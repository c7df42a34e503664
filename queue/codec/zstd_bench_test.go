package codec

import (
	"fmt"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"
)

// BenchmarkZstdLevels compares the settings for zstdLevel and zstdWindowBytes.
func BenchmarkZstdLevels(b *testing.B) {
	var documents [][]byte
	for i := range 20_000 {
		documents = append(documents, []byte(posting(i)))
	}
	dictionary, err := zstdCodec.Train(documents[:2000], 64<<10)
	require.NoError(b, err)
	for _, level := range []zstd.EncoderLevel{
		zstd.SpeedFastest, zstd.SpeedDefault, zstd.SpeedBetterCompression, zstd.SpeedBestCompression,
	} {
		for _, windowBytes := range []int{32 << 10, 256 << 10, 2 << 20} {
			b.Run(fmt.Sprintf("level=%s/window=%dK", level, windowBytes>>10), func(b *testing.B) {
				enc, err := zstdEncoderOf(level, windowBytes, dictionary)
				require.NoError(b, err)
				b.ReportAllocs()
				var out []byte
				var raw, stored int
				for i := 0; b.Loop(); i++ {
					d := documents[i%len(documents)]
					out, _ = enc.Encode(out[:0], d)
					raw, stored = raw+len(d), stored+len(out)
				}
				b.ReportMetric(float64(stored)/float64(raw), "stored/raw")
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(raw)*1024, "ns/KiB")
			})
		}
	}
}
