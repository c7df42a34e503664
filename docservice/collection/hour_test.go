package collection

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/internal/crashtest"
	"docstore/internal/testseed"
	"docstore/internal/vfs"
	"docstore/internal/virtualtime"
)

// TestAnHourOfFailures follows a queue for an hour of virtual time on a disk that fails,
// recovers, fills up and is emptied at random, while the process is killed or the power cut
// now and then. All answers are right or "unavailable"; at the end, with a working disk,
// everything is served and the index is sound.
func TestAnHourOfFailures(t *testing.T) {
	failures, crashes := crashtest.NewTally(t, "failures in hours"), crashtest.NewTally(t, "crashes in hours")
	for range crashtest.Share(2, 100) {
		random := testseed.Rand(t)
		course := newCourse(t, random, 60)
		virtualtime.Test(t, func(t *testing.T) {
			h := hour{t: t, course: course, random: random, failures: failures, crashes: crashes}
			h.run()
		})
	}
}

// hour is the state of TestAnHourOfFailures.
type hour struct {
	*course
	t        *testing.T
	random   *rand.Rand
	failures *crashtest.Tally
	crashes  *crashtest.Tally

	mem        *vfs.Mem
	disk       *crashtest.IntermittentDisk
	options    *Options
	collection *Collection
}

func (h *hour) run() {
	h.mem = servingDisk(h.t)
	h.boot()
	defer func() { h.collection.Close() }() // the last one
	for _, m := range h.moments {
		for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(h.seconds(10)) {
			m.bring(h.t, h.mem)
			switch h.random.IntN(8) {
			case 0, 1, 2:
				failures := crashtest.Failures()
				h.failures.Case()
				h.disk.Fail(failures[h.random.IntN(len(failures))])
			case 3, 4:
				h.disk.Heal()
			case 5:
				if h.random.IntN(5) == 0 {
					h.crash()
				}
			default:
				h.requireHonest(h.t, h.collection, h.random, "on an unsteady disk")
			}
		}
	}
	last := h.moments[len(h.moments)-1]
	h.disk.Heal()
	h.requireServed(h.t, h.collection, h.mem, last, "after an hour")
	h.requireDiskError(h.collection.Close())
	for _, keep := range []vfs.Keep{vfs.KeepAll, vfs.KeepSynced} {
		h.mem = h.mem.CrashClone(keep)
		h.boot()
		h.requireServed(h.t, h.collection, h.mem, last, "after an hour")
		require.NoError(h.t, h.collection.serving.Load().index.Check())
		require.NoError(h.t, h.collection.Close())
	}
}

func (h *hour) seconds(most float64) time.Duration {
	return time.Duration(h.random.Float64() * most * float64(time.Second))
}

// boot opens the collection on a working disk.
func (h *hour) boot() {
	h.disk = crashtest.NewIntermittentDisk(h.mem)
	h.options = &Options{
		FS: h.disk, MemtableBytes: 4 << 10, Quarantine: true, ScrubInterval: 5 * time.Minute,
	}
	var err error
	h.collection, err = Open("jobs", "/queue", "/index", h.options)
	require.NoError(h.t, err)
}

// crash kills the process or cuts the power, and starts again.
func (h *hour) crash() {
	ways := crashtest.Ways(h.random)
	way := ways[h.random.IntN(len(ways))]
	h.crashes.Case()
	after := h.mem.CrashClone(way.Keep)
	h.requireDiskError(h.collection.Close())
	h.mem = after
	h.boot()
}

// requireDiskError requires that an error, if any, comes from the disk.
func (h *hour) requireDiskError(err error) {
	known := err == nil
	for _, failure := range []error{syscall.EIO, vfs.ErrNoSpace, io.ErrUnexpectedEOF} {
		known = known || errors.Is(err, failure)
	}
	require.True(h.t, known, fmt.Sprintf("%+v", err))
}
