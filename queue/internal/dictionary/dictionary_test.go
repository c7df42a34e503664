package dictionary

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"testing"

	"docstore/internal/testseed"
	"docstore/queue/codec"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestUselessSampleGivesNoDictionary: random bytes have no common content.
func TestUselessSampleGivesNoDictionary(t *testing.T) {
	random := testseed.Rand(t)
	var documents [][]byte
	for range 100 {
		documents = append(documents, randomBytes2(random, 500))
	}
	for _, c := range dictionaryCodecs2() {
		d, err := Train(c, nil, documents, 4<<10)
		if err == nil {
			assert.Nil(t, d, c.Name)
		}
		_, err = Train(c, nil, documents[:3], 4<<10)
		require.ErrorIs(t, err, codec.ErrSampleTooSmall)
	}
}

// TestFruitlessTrainingsBecomeRare: with incompressible documents, training is tried
// after 1, 2, 4 ... segments.
func TestFruitlessTrainingsBecomeRare(t *testing.T) {
	c, err := codec.ByName("s2")
	require.NoError(t, err)
	random := testseed.Rand(t)
	var trainings []int
	segments := 0
	c.Train = func([][]byte, int) ([]byte, error) {
		trainings = append(trainings, segments)
		return randomBytes2(random, 1<<10), nil
	}
	trainer := NewTrainer(c, 1<<10, "queue", slog.New(slog.DiscardHandler))
	for ; segments < 20; segments++ {
		trainer.Take(0)
		for range 40 {
			trainer.Offer(1, randomBytes2(random, 500))
		}
		trainer.SegmentEnded()
		trainer.Wait()
	}
	require.Equal(t, []int{0, 2, 6, 14}, trainings)
}

// TestOddSamples trains from unusual documents.
func TestOddSamples(t *testing.T) {
	for name, document := range map[string][]byte{
		"one byte": {1}, "the same": []byte("the same all the time"), "zeros": make([]byte, 3000),
	} {
		var documents [][]byte
		for range 64 {
			documents = append(documents, document)
		}
		for _, c := range dictionaryCodecs2() {
			t.Run(c.Name+"/"+name, func(t *testing.T) {
				d, err := Train(c, nil, documents, 4<<10)
				t.Log(d != nil, err)
			})
		}
	}
}

func TestSampleIsBoundedAndSpread(t *testing.T) {
	s := NewSample(10_000)
	for i := range 10_000 {
		s.Add(1, []byte(fmt.Sprintf("%0100d", i)))
		require.LessOrEqual(t, s.bytes, 10_000)
	}
	require.Greater(t, len(s.Documents), 40)
	bytes := 0
	var quarters [4]int
	for _, d := range s.Documents {
		bytes += len(d)
		var n int
		_, err := fmt.Sscanf(string(d), "%d", &n)
		require.NoError(t, err)
		quarters[n/2500]++
	}
	assert.Equal(t, s.bytes, bytes)
	for _, n := range quarters {
		assert.InDelta(t, len(s.Documents)/4, n, 2)
	}
	s.Add(1, make([]byte, maxSampleDocumentBytes+1))
	assert.Equal(t, bytes, s.bytes)
}

// dictionaryCodecs returns the codecs that support dictionaries.
func dictionaryCodecs2() []codec.Codec {
	return slices.DeleteFunc(slices.Clone(codec.All()), func(c codec.Codec) bool { return c.Train == nil })
}

func randomBytes2(random *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(random.Uint32())
	}
	return b
}
