package publish

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestBreaker(t *testing.T) {
	bounds := Breaker{MaxDeletes: 0.5, MaxBad: 0.1, MaxRate: 3}
	minute := Counts{Documents: 1_000}
	for _, c := range []struct {
		name    string
		minutes []Counts // what arrives in each minute
		want    string
	}{
		{"no records", make([]Counts, 10), ""},
		{"few deletes", []Counts{{Documents: 500, Deletes: 500}}, ""},
		{"most are deletes", []Counts{minute, {Documents: 400, Deletes: 600}}, "600 of the last 1000 entries are deletes, more than 50.0 %"},
		{"too few to judge", []Counts{{Deletes: 99}}, ""},
		{"deletes in two minutes", []Counts{{Deletes: 80}, {Deletes: 80}}, "160 of the last 160 entries are deletes, more than 50.0 %"},
		{"invalid records", []Counts{{Documents: 800, Bad: 100}}, "100 of the last 900 records are invalid, more than 10.0 %"},
		{"a faster minute without an average", []Counts{minute, {Documents: 9_000}}, ""},
		{"a faster minute", []Counts{minute, minute, minute, minute, minute, {Documents: 3_001}}, "3001 entries arrived within a minute, more than 3.0 times the average of 1000"},
		{"as fast as allowed", []Counts{minute, minute, minute, minute, minute, {Documents: 3_000}}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			b, now, total := bounds, time.Unix(0, 0), Counts{}
			require.Empty(t, b.Check(now, total))
			for i, m := range c.minutes {
				total = Counts{total.Documents + m.Documents, total.Deletes + m.Deletes, total.Bad + m.Bad}
				got := b.Check(now.Add(30*time.Second), total)
				if i < len(c.minutes)-1 {
					require.Empty(t, got)
				} else {
					require.Equal(t, c.want, got)
				}
				now = now.Add(breakerPeriod)
				_ = b.Check(now, total)
			}
			b.Reset(total)
			require.Empty(t, b.Check(now, total))
		})
	}
}

// TestBreakerForgetsAnIdleHour, after which the average is unknown.
func TestBreakerForgetsAnIdleHour(t *testing.T) {
	b, now, total := Breaker{MaxRate: 2}, time.Unix(0, 0), Counts{}
	for range 10 {
		total.Documents += 1_000
		require.Empty(t, b.Check(now, total))
		now = now.Add(breakerPeriod)
	}
	now = now.Add(24 * time.Hour)
	require.Empty(t, b.Check(now, total))
	total.Documents += 10_000
	require.Empty(t, b.Check(now.Add(time.Second), total))
}
