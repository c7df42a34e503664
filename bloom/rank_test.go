package bloom

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"docstore/internal/testseed"
)

// pages parses candidates: the worth of each (for 10 bytes), and * if it is in memory.
func pages(drawing string) []candidate {
	var result []candidate
	for i, word := range strings.Fields(drawing) {
		worth, resident := strings.CutSuffix(word, "*")
		p := candidate{page: i, bytes: 10, resident: resident}
		if short, ok := strings.CutSuffix(worth, "/2"); ok { // a page half as large
			worth, p.bytes = short, 5
		}
		_, _ = fmt.Sscan(worth, &p.worth)
		result = append(result, p)
	}
	return result
}

// draw formats swaps as "+in-out-out", by page positions.
func draw(swaps []swap) string {
	var b strings.Builder
	for _, s := range swaps {
		b.WriteByte(' ')
		if s.in != nil {
			fmt.Fprintf(&b, "+%d", s.in.page)
		}
		for _, p := range s.out {
			fmt.Fprintf(&b, "-%d", p.page)
		}
	}
	return strings.TrimSpace(b.String())
}

func TestChoose(t *testing.T) {
	for _, c := range []struct {
		name    string
		drawing string
		room    int64
		limit   int64
		want    string
		more    bool
	}{
		{"no pages", "", 100, 100, "", false},
		{"room for all, the best first", "1 3 2", 30, 100, "+1 +2 +0", false},
		{"as many as fit", "1 3 2", 29, 100, "+1 +2", false},
		{"among equals the first", "0 0 0 0", 20, 100, "+0 +1", false},
		{"the best for the worst", "5 9 1* 3*", 20, 100, "+1-2 +0-3", false},
		{"not for a small gain", "3.2 3*", 10, 100, "", false},
		{"not for an equal one", "3 3*", 10, 100, "", false},
		{"not for less than one saved lookup", "0.05 0*", 10, 100, "", false},
		{"for one saved lookup", "0.11 0*", 10, 100, "+0-1", false},
		{"free space is used first", "5 4 1*", 20, 100, "+0 +1-2", false},
		{"no more than the limit", "5 6 7", 100, 20, "+2 +1", true},
		{"no loads with limit 0", "5", 100, 0, "", true},
		{"over budget the worst are dropped", "3* 1* 2*", 15, 100, "-1-2", false},
		{"over budget among equals the last are dropped", "1* 1* 1*", 15, 100, "-2-1", false},
		{"drops have no limit", "3* 1* 2* 4", 25, 0, "-1", true},
		{"no space", "3* 1*", -5, 100, "-1-0", false},
		{"two small ones for a large one", "9 1/2* 2/2*", 10, 100, "+0-1-2", false},
		{"not if one of them is better", "9 1/2* 9/2*", 10, 100, "", false},
		{"a smaller one fits", "9 8/2 9*", 15, 100, "+1", false},
	} {
		swaps, more := choose(pages(c.drawing), c.room, c.limit, worthwhile)
		assert.Equal(t, c.want, draw(swaps), c.name)
		assert.Equal(t, c.more, more, c.name)
	}
}

// TestChooseRandomly: after each swap the resident pages fit, no page replaces a better
// one, and repeated passes terminate.
func TestChooseRandomly(t *testing.T) {
	random := testseed.Rand(t)
	for range 2000 {
		list := make([]candidate, random.IntN(30))
		for i := range list {
			list[i] = candidate{page: i, bytes: 8 << random.IntN(3), worth: float64(random.IntN(10)), resident: random.IntN(2) == 0}
		}
		room, limit := random.Int64N(300)-20, random.Int64N(300)
		swaps, more := choose(list, room, limit, worthwhile)
		var used, read int64
		for _, p := range list {
			if p.resident {
				used += p.bytes
			}
		}
		for _, s := range swaps {
			for _, out := range s.out {
				require.True(t, out.resident)
				require.True(t, s.in == nil || worthwhile(s.in, out))
				out.resident = false
				used -= out.bytes
			}
			if s.in != nil {
				require.False(t, s.in.resident)
				s.in.resident = true
				used += s.in.bytes
				read += s.in.bytes
			}
			require.LessOrEqual(t, used, max(0, room))
		}
		require.LessOrEqual(t, read, limit)
		if more {
			continue
		}
		for passes := 0; len(swaps) > 0; passes++ {
			require.Less(t, passes, len(list), "passes do not terminate")
			swaps, _ = choose(list, room, 1<<40, worthwhile)
			for _, s := range swaps {
				for _, out := range s.out {
					out.resident = false
				}
				s.in.resident = true
			}
		}
	}
}
