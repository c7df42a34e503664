package collection

import (
	"bytes"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/errors"
	"github.com/stretchr/testify/require"

	"docstore/docservice"
	"docstore/internal/crashtest"
	"docstore/internal/testseed"
	"docstore/internal/vfs"
	"docstore/queue"
)

// moment is the state of a queue at its source at one time.
type moment struct {
	files map[string][]byte // by name
	state map[string]string // the documents that exist
	last  queue.Address
}

// course is the history of a queue, moment by moment.
type course struct {
	moments []moment
	ids     []string
	// versions are all documents that an id has ever had; "" means none.
	versions map[string]map[string]bool
}

func newCourse(t *testing.T, random *rand.Rand, moments int) *course {
	source := newMemFixture(t)
	c := &course{versions: map[string]map[string]bool{}}
	for i := range 60 {
		id := fmt.Sprintf("id-%d", i)
		c.ids, c.versions[id] = append(c.ids, id), map[string]bool{"": true}
	}
	state := map[string]string{}
	for n := range moments {
		var last queue.Address
		for range 10 + random.IntN(80) {
			id, document := c.ids[random.IntN(len(c.ids))], ""
			var err error
			if random.IntN(6) == 0 {
				last, err = source.queueWriter().Delete([]byte(id))
				delete(state, id)
			} else {
				document = fmt.Sprintf("%s at moment %d: %s", id, n, strings.Repeat("x", random.IntN(200)))
				last, err = source.queueWriter().Append([]byte(id), []byte(document))
				state[id] = document
			}
			require.NoError(t, err)
			c.versions[id][document] = true
		}
		require.NoError(t, source.writer.Flush())
		if n%3 == 2 {
			source.seal()
		}
		m := moment{files: map[string][]byte{}, state: maps.Clone(state), last: last}
		names, err := source.fs.List(source.queueDir)
		require.NoError(t, err)
		for _, name := range names {
			if _, ok := parseSegmentName(name); ok {
				m.files[name], err = vfs.ReadFile(source.fs, filepath.Join(source.queueDir, name))
				require.NoError(t, err)
			}
		}
		c.moments = append(c.moments, m)
	}
	return c
}

// bring emulates a pass of docstore-sync: the directory gets the files of a moment.
func (m moment) bring(t *testing.T, disk vfs.FS) {
	t.Helper()
	const dir = "/queue"
	for name, content := range m.files {
		path := filepath.Join(dir, name)
		here, err := vfs.ReadFile(disk, path)
		switch {
		case err == nil && bytes.Equal(here, content):
			continue
		case err == nil && strings.HasSuffix(name, ".open") && bytes.HasPrefix(content, here):
			file, err := disk.OpenAppend(path)
			require.NoError(t, err)
			_, err = file.Write(content[len(here):])
			require.NoError(t, err)
			require.NoError(t, file.Close())
			continue
		}
		if err := disk.Remove(path + ".incoming"); !errors.Is(err, fs.ErrNotExist) {
			require.NoError(t, err)
		}
		file, err := disk.Create(path + ".incoming")
		require.NoError(t, err)
		_, err = file.Write(content)
		require.NoError(t, err)
		if strings.HasSuffix(name, ".seg") {
			require.NoError(t, file.Sync())
		}
		require.NoError(t, file.Close())
		require.NoError(t, disk.Rename(path+".incoming", path))
	}
	names, err := disk.List(dir)
	require.NoError(t, err)
	for _, name := range names {
		if _, segment := parseSegmentName(name); segment && m.files[name] == nil {
			require.NoError(t, disk.Remove(filepath.Join(dir, name))) // it was sealed
		}
	}
}

// requireServed waits until a collection has read the queue of a moment, bringing damaged
// files again, and checks every document.
func (c *course) requireServed(t *testing.T, collection *Collection, disk vfs.FS, m moment, when string) {
	t.Helper()
	await := func() {
		waitFor(t, collection, "it is read: "+when, func(s Status) bool {
			m.bring(t, disk)
			return m.last.Compare(s.Position.Next) < 0 && s.Ready && (len(s.Faults) == 0 || collection.options.VerifyInterval < 0) // without the background pass they stay listed
		})
	}
	await()
	for _, id := range c.ids {
		document, err := collection.Get(nil, []byte(id))
		for errors.Is(err, docservice.ErrUnavailable) { // a read that the disk failed before has been recorded only now
			await()
			document, err = collection.Get(nil, []byte(id))
		}
		if want, there := m.state[id]; there {
			require.NoError(t, err, "%s: %s", when, id)
			require.Equal(t, want, string(document), "%s: %s", when, id)
		} else {
			require.ErrorIs(t, err, docservice.ErrNotFound, "%s: %s", when, id)
		}
	}
}

// requireHonest reads some documents: any version that existed, or "unavailable", is
// correct.
func (c *course) requireHonest(t *testing.T, collection *Collection, random *rand.Rand, when string) {
	t.Helper()
	for range 8 {
		id := c.ids[random.IntN(len(c.ids))]
		document, err := collection.Get(nil, []byte(id))
		if err == nil || errors.Is(err, docservice.ErrNotFound) {
			require.Contains(t, c.versions[id], string(document), "%s: %s", when, id)
		} else {
			require.ErrorIs(t, err, docservice.ErrUnavailable, "%s: %s", when, id)
		}
	}
}

// followOptions make the index write and merge tables during the test.
func followOptions(disk vfs.FS, random *rand.Rand) *Options {
	o := &Options{
		FS: disk, MemtableBytes: 4 << 10, PollInterval: time.Millisecond, RetryInterval: time.Millisecond,
		VerifyInterval: -1, SweepInterval: -1, ScrubInterval: -1,
	}
	if random.IntN(2) == 0 {
		o.VerifyInterval, o.Quarantine, o.QuarantineAfter = time.Millisecond, true, time.Nanosecond
	}
	if random.IntN(2) == 0 {
		o.ScrubInterval, o.ScrubBytesPerSecond = time.Millisecond, 64<<20
	}
	return o
}

// servingDisk returns a disk with an empty queue.
func servingDisk(t *testing.T) *vfs.Mem {
	mem := vfs.NewMem()
	require.NoError(t, vfs.MakeDir(mem, "/queue"))
	return mem
}

// TestCrashAtEveryOperation follows a queue and cuts the power before every write operation
// of the tail, of the index's flushes and merges, and of the background pass. The state
// after the crash answers with documents that existed, or "unavailable", until the queue
// has been copied again; then it answers with all of them.
func TestCrashAtEveryOperation(t *testing.T) {
	tally := crashtest.NewTally(t, "crashes")
	for range crashtest.Share(1, 12) {
		random := testseed.Rand(t)
		course := newCourse(t, random, 9)
		mem := servingDisk(t)
		sparing := crashtest.Share(8, 1) // crash before one in so many operations
		var one sync.Mutex               // many goroutines run operations
		var cuts []powerCut
		c, err := Open("jobs", "/queue", "/index", followOptions(vfs.NewFault(mem, func(op vfs.Op) error {
			one.Lock()
			defer one.Unlock()
			if !op.Kind.Writes() || random.IntN(sparing) != 0 {
				return nil
			}
			for _, way := range crashtest.Ways(random) {
				cuts = append(cuts, powerCut{mem.CrashClone(way.Keep), fmt.Sprintf("before %v, %s", op, way.Name)})
			}
			return nil
		}), random))
		require.NoError(t, err)
		for n, m := range course.moments[:len(course.moments)-1] {
			m.bring(t, mem)
			course.requireServed(t, c, mem, m, "without a crash")
			one.Lock()
			for _, cut := range cuts {
				tally.Case()
				course.requireRecovery(t, cut.disk, n, random, cut.when)
			}
			cuts = nil
			one.Unlock()
		}
		require.NoError(t, c.Close())
	}
}

// powerCut is the state of the disk after a crash.
type powerCut struct {
	disk *vfs.Mem
	when string
}

// requireRecovery opens the state after a crash that happened at a moment.
func (c *course) requireRecovery(t *testing.T, disk vfs.FS, reached int, random *rand.Rand, when string) {
	t.Helper()
	collection, err := Open("jobs", "/queue", "/index", followOptions(disk, random))
	require.NoError(t, err, when)
	c.requireHonest(t, collection, random, when)
	for _, m := range c.moments[reached : reached+2] {
		m.bring(t, disk)
		c.requireServed(t, collection, disk, m, when)
	}
	require.NoError(t, collection.Close(), when)
}

// TestFaultAtEveryOperation makes the disk fail in every way at every operation of a
// collection, reads included. Meanwhile the collection answers with existing documents or
// "unavailable". When the disk works again it catches up automatically, or after a reopen
// if the open failed. Then the power is cut.
func TestFaultAtEveryOperation(t *testing.T) {
	faults, crashes := crashtest.NewTally(t, "faults"), crashtest.NewTally(t, "crashes")
	for _, failure := range crashtest.Failures() {
		random := testseed.Rand(t)
		course := newCourse(t, random, 5)
		for k := int64(1); ; k += 1 + random.Int64N(int64(crashtest.Share(25, 1))) {
			when := fmt.Sprintf("%s at %d", failure.Name, k)
			mem := servingDisk(t)
			disk := failure.At(k, mem)
			options := followOptions(disk, random)
			c, err := Open("jobs", "/queue", "/index", options)
			if err != nil {
				require.ErrorIs(t, err, failure.Err, when)
				disk.Heal()
				c, err = Open("jobs", "/queue", "/index", options)
				require.NoError(t, err, when)
			}
			for _, m := range course.moments[:3] {
				m.bring(t, mem)
				course.requireHonest(t, c, random, when)
				waitFor(t, c, "it is read, or the disk has failed: "+when, func(s Status) bool {
					m.bring(t, mem) // quarantined files
					return m.last.Compare(s.Position.Next) < 0 || failure.Permanent && disk.Failed() > 0
				})
			}
			failed := disk.Failed() > 0
			disk.Heal()
			course.moments[3].bring(t, mem)
			course.requireServed(t, c, mem, course.moments[3], when)
			if err := c.Close(); err != nil {
				require.ErrorIs(t, err, failure.Err, when)
			}
			if !failed {
				break
			}
			faults.Case()
			way := crashtest.Ways(random)[random.IntN(5)]
			crashes.Case()
			course.requireRecovery(t, mem.CrashClone(way.Keep), 3, random, when+", healed, "+way.Name)
		}
	}
}
