package checksum

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestKnownValues(t *testing.T) {
	// The check value of CRC-32C and the first two vectors of RFC 3720, B.4.
	assert.EqualValues(t, 0xE3069283, Of([]byte("123456789")))
	assert.EqualValues(t, 0x8A9136AA, Of(make([]byte, 32)))
	assert.EqualValues(t, 0, Of())
}

func TestPartsAreOneWhole(t *testing.T) {
	whole := []byte("a document and its header")
	want := Of(whole)
	for i := range whole {
		assert.Equal(t, want, Of(whole[:i], whole[i:]))
		assert.Equal(t, want, Of(whole[:i], nil, whole[i:]))
		assert.Equal(t, want, Update(Of(whole[:i]), whole[i:]))
	}
}

func TestAllocatesNothing(t *testing.T) {
	header, body := make([]byte, 12), make([]byte, 100)
	assert.Zero(t, testing.AllocsPerRun(100, func() { Of(header, body) }))
}

func BenchmarkOf(b *testing.B) {
	header, body := make([]byte, 12), make([]byte, 1000)
	b.ReportAllocs()
	b.SetBytes(int64(len(header) + len(body)))
	var sum uint32
	for b.Loop() {
		sum ^= Of(header, body)
	}
	_ = sum
}
