package server

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/docservice/collection"
	"docstore/docservice/server/internal/httpapi"
	"docstore/queue"
	"docstore/queue/stored"
)

// BenchmarkTransfer makes the bodies of responses from stored documents: as they are
// stored, and compressed for the response.
func BenchmarkTransfer(b *testing.B) {
	words := strings.Fields("the of and a to in is you that it he was for on are as with his they I at be this have from or one had by word")
	rng := rand.New(rand.NewPCG(1, 1))
	for _, size := range []int{1 << 10, 10 << 10, 100 << 10} {
		var text strings.Builder
		for text.Len() < size {
			fmt.Fprintf(&text, "%s %x ", words[rng.IntN(len(words))], rng.Uint32N(1000))
		}
		document := []byte(fmt.Sprintf(`{"text":%q}`, text.String()))
		for _, codec := range []string{"s2", "zstd"} {
			dir := b.TempDir()
			w, err := queue.OpenWriter(dir, &queue.WriterOptions{Codec: codec})
			require.NoError(b, err)
			_, err = w.Append([]byte("a"), document)
			require.NoError(b, err)
			require.NoError(b, w.Close())
			c, err := collection.Open("jobs", dir, b.TempDir(), nil)
			require.NoError(b, err)
			defer c.Close()
			require.NoError(b, c.WaitReady(b.Context()))
			api := &documentAPI{router: collection.NewService(c), cache: stored.NewDecoderCache(1 << 20)}
			api.mu.decoders = map[string]*stored.Decoders{}
			m := &documentMemory{name: []byte("jobs"), id: []byte("a")}
			for _, coding := range []httpapi.Coding{httpapi.Identity, httpapi.Gzip, httpapi.Zstd} {
				b.Run(fmt.Sprintf("size=%d/stored=%s/sent=%s", size, codec, coding), func(b *testing.B) {
					b.ReportAllocs()
					b.SetBytes(int64(len(document)))
					sent := 0
					for b.Loop() {
						content, err := api.fetch(b.Context(), m, coding)
						require.NoError(b, err)
						t, err := api.transfer(b.Context(), m, content, coding)
						require.NoError(b, err)
						sent = len(t.magic) + len(t.bytes)
					}
					b.ReportMetric(float64(sent)/float64(len(document)), "sent/raw")
				})
			}
		}
	}
}
