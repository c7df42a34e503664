package jobs

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSameSeedSamePostings(t *testing.T) {
	a, b, other := New(7), New(7), New(8)
	same := true
	for range 100 {
		line := a.Next()
		require.Equal(t, string(line), string(b.Next()))
		same = same && string(line) == string(other.Next())
	}
	require.False(t, same)
}

func TestPostings(t *testing.T) {
	g := New(1)
	bytes := 0
	for n := 1; n <= 1000; n++ {
		line := g.Next()
		require.NotContains(t, string(line), "\n")
		var p Posting
		require.NoError(t, json.Unmarshal(line, &p))
		require.Equal(t, ID(n), p.ID)
		require.NotEmpty(t, p.Title)
		require.Less(t, p.Salary.Minimum, p.Salary.Maximum)
		unique := map[string]bool{}
		for _, skill := range p.Skills {
			unique[skill] = true
		}
		require.Len(t, unique, len(p.Skills), "skills named twice: %v", p.Skills)
		bytes += len(line)
	}
	require.InDelta(t, 1000, bytes/1000, 300, "bytes of an average posting")
}

func BenchmarkNext(b *testing.B) {
	g := New(1)
	b.ReportAllocs()
	for b.Loop() {
		b.SetBytes(int64(len(g.Next())))
	}
}

func ExampleGenerator_NextPosting() {
	p := New(1).NextPosting()
	fmt.Println(p.ID, len(p.Skills) >= 3)
	// Output: job-0000001 true
}
