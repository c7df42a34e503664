package lsm

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/time/rate"

	"docstore/internal/vfs"
	"docstore/internal/virtualtime"
)

// TestMergeRate measures a merge of several tables in virtual time. It is not limited if so many
// tables wait that writers would soon be slowed.
func TestMergeRate(t *testing.T) {
	const perSecond, tableBytes = 1 << 20, 1 << 20
	for tables, limited := range map[int]bool{4: true, 8: true, 16: false} {
		t.Run(fmt.Sprint(tables, " tables"), func(t *testing.T) {
			virtualtime.Test(t, func(t *testing.T) {
				o := &Options{FS: vfs.NewMem(), MemtableBytes: 2 * tableBytes, MergeRule: MergeNever}
				db, err := Open("db", o)
				require.NoError(t, err)
				value := make([]byte, 1000)
				for n := range tables {
					for i := range tableBytes / len(value) {
						set(t, db, fmt.Sprint(i, "-", n), string(value))
					}
					require.NoError(t, db.Flush())
				}
				require.NoError(t, db.Close())

				o.MergeRule, o.MergeRate = SizeTiered, rate.NewLimiter(perSecond, mergeStepBytes)
				start := time.Now()
				db, err = Open("db", o)
				require.NoError(t, err)
				require.NoError(t, db.WaitIdle(t.Context()))
				took := time.Since(start)
				stats := db.Stats()
				require.Len(t, stats.Tables, 1)
				if limited {
					want := time.Duration(float64(stats.Writes.MergeBytes) / perSecond * float64(time.Second))
					require.Less(t, took, want)
					require.Greater(t, took, want-4*time.Second, "less the burst, and what the last step writes")
				} else {
					require.Zero(t, took)
				}
				require.NoError(t, db.Close())
			})
		})
	}
}

// TestPausedMerge: a merge that is limited ends its pause when a smaller merge is due, when
// merges become urgent, and when the store is closed.
func TestPausedMerge(t *testing.T) {
	for name, test := range map[string]struct {
		newer []uint64 // sizes of tables that are added after a minute
		want  bool
		took  time.Duration
	}{
		"nothing changes":   {nil, true, time.Hour},
		"a merge is due":    {[]uint64{1, 1}, false, time.Minute},
		"merges are urgent": {slices.Repeat([]uint64{1}, 2*urgentExcess), true, time.Minute},
		"closed":            {nil, true, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			virtualtime.Test(t, func(t *testing.T) {
				s := newTestScheduler(1, 8, 8)
				start := time.Now()
				go func() {
					time.Sleep(time.Minute)
					if name == "closed" {
						s.close()
						return
					}
					s.mu.Lock()
					defer s.mu.Unlock()
					v := s.current.Load()
					s.setView(v.memtables, append(newTestScheduler(1, test.newer...).current.Load().tables, v.tables...))
				}()
				require.Equal(t, test.want, s.pauseMerge(start.Add(time.Hour), s.current.Load().tables))
				require.Equal(t, test.took, time.Since(start))
				synctest.Wait()
			})
		})
	}
}
