package livepage

import (
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/internal/virtualtime"
)

func TestQuantile(t *testing.T) {
	bounds := []float64{1, 2, 4, 8}
	h := Histogram{bounds, []uint64{0, 100, 0, 0, 0}}
	require.InDelta(t, 1.414, h.quantile(0.5), 0.001, "in the middle of its bucket, logarithmically")
	h = Histogram{bounds, []uint64{50, 0, 50, 0, 0}}
	require.InDelta(t, 1, h.quantile(0.5), 0.001)
	require.InDelta(t, 3.92, h.quantile(0.985), 0.05)
	require.Zero(t, Histogram{bounds, make([]uint64, 5)}.quantile(0.99))
	require.InDelta(t, 8, Histogram{bounds, []uint64{0, 0, 0, 0, 7}}.quantile(0.5), 0, "beyond the last bound")
}

func histogram(counts ...uint64) Histogram { return Histogram{[]float64{1e-3, 1e-2}, counts} }

// TestLatencies: latencies cover only the last ten seconds.
func TestLatencies(t *testing.T) {
	var samples []Sample
	for i := range uint64(30) {
		h := histogram(100*i, 0, 0) // fast requests
		if i >= 15 {
			h = histogram(1500, 200*(i-15), 0)
		}
		samples = append(samples, Sample{Time: time.Unix(int64(i), 0), Methods: []MethodSample{{"boxcar", "Get", h}}})
	}
	l := latencies(samples)
	require.Len(t, l, 1)
	require.EqualValues(t, 1500+200*14, l[0].Total)
	require.InDelta(t, 200, l[0].PerSecond, 1e-9)
	require.Greater(t, l[0].P50, 1e-3)
	require.Empty(t, latencies(nil))
	require.Zero(t, latencies(samples[:1])[0].PerSecond, "one sample has no rate")

	require.Len(t, percentile(samples, 0.5), 29)
	require.Less(t, percentile(samples, 0.5)[0], 1e-3)
	require.Greater(t, percentile(samples, 0.5)[28], 1e-3)
	require.InDelta(t, 100, requestsPerSecond(samples)[0], 1e-9)
	require.InDelta(t, 200, requestsPerSecond(samples)[28], 1e-9)
}

// TestColdReads: figures of cold reads cover the last ten seconds, or the time since the
// collection was added, and do not fall below zero when a shard leaves.
func TestColdReads(t *testing.T) {
	ofQueue := func(c CollectionSample) Histogram { return c.ColdQueue }
	var samples []Sample
	add := func(c ...CollectionSample) {
		samples = append(samples, Sample{Time: time.Unix(int64(len(samples)), 0), Collections: c})
	}
	require.Nil(t, coldReads(samples, "jobs", ofQueue))
	add()
	add(CollectionSample{Name: "jobs"})
	require.Nil(t, coldReads(samples, "jobs", ofQueue), "not measured")
	add(CollectionSample{Name: "jobs", ColdQueue: histogram(1000, 0, 0)})
	require.Equal(t, &ColdReads{Total: 1000}, coldReads(samples, "jobs", ofQueue), "one sample has no rate")
	for i := range uint64(4) {
		add(CollectionSample{Name: "jobs", ColdQueue: histogram(1000, 50*i, 0)})
	}
	c := coldReads(samples, "jobs", ofQueue)
	require.EqualValues(t, 1150, c.Total)
	require.InDelta(t, 37.5, c.PerSecond, 1e-9)
	require.InDelta(t, 3.16e-3, c.P50, 0.01e-3)
	require.Greater(t, c.P99, c.P50)
	require.Nil(t, coldReads(samples, "others", ofQueue))
	add(CollectionSample{Name: "jobs", ColdQueue: histogram(500, 160, 0)})
	c = coldReads(samples, "jobs", ofQueue)
	require.EqualValues(t, 660, c.Total)
	require.InDelta(t, 32, c.PerSecond, 1e-9)
	for range figureSamples {
		add(CollectionSample{Name: "jobs", ColdQueue: histogram(500, 160, 0)})
	}
	require.Equal(t, &ColdReads{Total: 660}, coldReads(samples, "jobs", ofQueue))
}

type countingSource struct {
	Source
	samples atomic.Int64
}

func (s *countingSource) Sample() Sample {
	return Sample{Time: time.Now(), Collections: []CollectionSample{{Name: "jobs", Found: uint64(10 * s.samples.Add(1))}}}
}

// TestFiveMinutesAreKept: older samples are dropped.
func TestFiveMinutesAreKept(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		source := &countingSource{}
		p := New(source, false, slog.New(slog.DiscardHandler))
		done := make(chan struct{})
		go func() {
			p.Run(t.Context())
			close(done)
		}()
		t.Cleanup(func() { <-done }) // t.Context has ended by then
		time.Sleep(2 * sampleCount * sampleInterval)
		synctest.Wait()
		samples := p.recorder.history()
		require.Len(t, samples, sampleCount)
		require.EqualValues(t, 10*source.samples.Load(), samples[sampleCount-1].Collections[0].Found)
		require.InDelta(t, 10, documentsPerSecond(samples, "jobs")[0], 1e-9)
	})
}

func TestCells(t *testing.T) {
	pages := make([]FilterPage, 1000)
	for i := range pages {
		pages[i] = FilterPage{Bytes: 10, Resident: i < 500, Usefulness: float64(i)}
	}
	c := cells(pages, 10)
	require.Len(t, c, 10)
	require.Equal(t, cell{Pages: 100, Resident: 1, Usefulness: 49.5}, c[0])
	require.Equal(t, cell{Pages: 100, Usefulness: 949.5}, c[9])
	require.Len(t, cells(pages[:3], 10), 3)
	require.Empty(t, cells(nil, 10))
}

func TestHeatMap(t *testing.T) {
	f := &Filter{BudgetBytes: 25, IndexBytes: 5, PageBytes: 40, Tables: []FilterPages{
		{7, []FilterPage{{10, true, 0}, {10, false, 50}}},
		{3, []FilterPage{{10, true, 100}, {10, true, 1}}},
	}}
	m := newHeatMap(f, residency{7: {1, 1}, 3: {1, 1, 1}})
	require.InDelta(t, 0.5, m.Budget, 1e-9)
	require.Len(t, m.Rows, 2)
	require.False(t, m.Rows[0].Cells[0].Fell)
	require.True(t, m.Rows[0].Cells[1].Fell)
	require.False(t, m.Rows[1].Cells[0].Fell, "the table had other pages before")
	var useful []float64
	for _, c := range m.Ranking {
		useful = append(useful, c.Usefulness)
	}
	require.Equal(t, []float64{100, 50, 1, 0}, useful)
	require.InDelta(t, 1, m.Ranking[0].Heat, 1e-9)
	require.Zero(t, m.Ranking[3].Heat)
	require.Equal(t, residency{7: {1, 0}, 3: {1, 1}}, m.residency())
}

func TestOlderSegmentsShareARow(t *testing.T) {
	var segments []Segment
	for i := range uint32(200) {
		segments = append(segments, Segment{First: i + 1, Last: i + 1, Documents: 2, StoredBytes: 10, LiveBytes: 4, Counted: true})
	}
	rows := segmentRows(segments)
	require.Len(t, rows, shownSegments+1)
	require.Equal(t, "200", rows[0].Name)
	oldest := rows[shownSegments]
	require.Equal(t, fmt.Sprintf("%d older", 200-shownSegments), oldest.Name)
	require.EqualValues(t, 2*(200-shownSegments), oldest.Documents)
	require.InDelta(t, 400, oldest.Live, 1e-9)
	require.InDelta(t, 600, oldest.Dead, 1e-9)
	segments[0].Counted = false
	for _, segment := range []int{0, shownSegments} {
		segments[199].Counted = false
		require.InDelta(t, 0, segmentRows(segments)[segment].Dead, 0, "nothing is known to be dead")
	}
}

func TestClients(t *testing.T) {
	var b Boxcar
	for i := range 30 {
		b.Slots = append(b.Slots, Slot{Number: i, Client: []string{"many", "many", "few"}[i%3], Requests: 2, Busy: i == 0})
	}
	found := clients(b)
	require.Len(t, found, 2)
	require.Equal(t, "many", found[0].Name)
	require.Equal(t, 20, found[0].Slots)
	require.Equal(t, 1, found[0].Busy)
	require.EqualValues(t, 40, found[0].Requests)
	require.Equal(t, "2 5 8 11 14 17 20 23 26 29", found[1].Ladder)
	require.Len(t, shownBoard(b, "few").Slots, 10)
}

func TestFormatPercent(t *testing.T) {
	require.Equal(t, "50.0 %", formatPercent(1, 2))
	require.Equal(t, "0 %", formatPercent(1, 0))
}

func TestStack(t *testing.T) {
	parts := stack(100, bar{"a", "m1", 50}, bar{"b", "m2", 80})
	require.InDelta(t, 500, parts[1].X, 1e-9)
	require.InDelta(t, 500, parts[1].Width, 1e-9, "what exceeds the whole is cut off")
}

// TestAddedCollection: a collection appears from its first sample on, and does not affect
// the others, in any order.
func TestAddedCollection(t *testing.T) {
	var samples []Sample
	for i := range 4 {
		s := Sample{Time: time.Unix(int64(i), 0), Collections: []CollectionSample{{Name: "jobs", Found: uint64(10 * i)}}, Boxcar: BoxcarSample{Leases: uint64(i), Refused: uint64(2 * i)}}
		if i >= 2 {
			s.Collections = append([]CollectionSample{{Name: "applicants", Found: 1000, LagBytes: 7}}, s.Collections...)
		}
		samples = append(samples, s)
	}
	require.Equal(t, []float64{10, 10, 10}, documentsPerSecond(samples, "jobs"))
	require.Equal(t, []float64{0}, documentsPerSecond(samples, "applicants"))
	require.Equal(t, []float64{7}, lagBytes(samples, "applicants"))
	require.Empty(t, visibleAfter(samples, "others"))
	require.Equal(t, []float64{1, 1, 1}, leasesPerSecond(samples))
	require.Equal(t, []float64{2, 2, 2}, refusedPerSecond(samples))
}

// A single slow moment does not flatten the values before and after it.
func TestByRatio(t *testing.T) {
	require.InDelta(t, 1, byRatio(0.01, 0.01), 1e-9)
	require.InDelta(t, 0.5, byRatio(100e-6, 0.01), 1e-9, "two of four decades")
	require.Zero(t, byRatio(0, 0.01), "no requests")
	require.Zero(t, byRatio(0, 0))
	require.InDelta(t, 0.01, fromZero(100e-6, 0.01), 1e-9)
}
