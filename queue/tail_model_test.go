package queue_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"docstore/internal/crashtest"
	"docstore/internal/testseed"
	"docstore/internal/vfs"
	"docstore/queue"
	"docstore/queue/internal/queuetest"
	"docstore/queue/internal/segment"
	"docstore/queue/maintain"

	"github.com/stretchr/testify/require"
)

// TestTailModel runs random histories of a source and a copy: entries are appended,
// sealed, compacted and truncated, the newest segment is removed by hand and its number
// used again, an older copy is restored, and files arrive at the copy in any order and in
// part. The model knows which entries each reader has read, and so whether the files
// continue its position. If they do, the reader gets every entry; otherwise it gets
// ErrForked or ErrTruncated, or waits. It never skips entries silently.
func TestTailModel(t *testing.T) {
	random := testseed.Rand(t)
	for range crashtest.Share(4, 400) {
		m := newTailModel(t, random)
		for range 30 {
			m.step()
			m.checkSource()
			m.checkCopy()
		}
		m.copyAll()
		for i := range m.copyReaders {
			m.requireOutcome(m.copy, &m.copyReaders[i])
		}
	}
}

// history is the state of the source at one time.
type queueHistory struct {
	entries []queuetest.Item // all committed ones, including those dropped by a compaction
	cuts    []segment.AddressRange
	removed bool // entries were truncated, and their older versions may be gone
}

// before returns the entries before an address.
func (h *queueHistory) before(a queue.Address) []queuetest.Item {
	n, _ := slices.BinarySearchFunc(h.entries, a, func(e queuetest.Item, a queue.Address) int { return e.At.Compare(a) })
	return h.entries[:n]
}

// modelReader is a reader at a position, with the entries that it has read.
type modelReader struct {
	at   queue.Position
	seen []queuetest.Item
}

type tailModel struct {
	t           *testing.T
	random      *rand.Rand
	now         atomic.Int64
	serial      int
	source      *vfs.Mem
	copy        *vfs.Mem
	history     queueHistory
	histories   []queueHistory // all histories so far
	snapshots   []*vfs.Mem
	snapshotOf  []queueHistory
	readers     []modelReader // positions of readers of the source
	copyReaders []modelReader
	log         []string
}

func newTailModel(t *testing.T, random *rand.Rand) *tailModel {
	m := &tailModel{t: t, random: random, source: queuetest.NewSource(t), copy: queuetest.NewMem(t)}
	m.readers, m.copyReaders = []modelReader{{}}, []modelReader{{}}
	m.histories = []queueHistory{{}}
	return m
}

func (m *tailModel) options() *queue.WriterOptions {
	opts := queuetest.Options(m.source)
	opts.BlockBytes, opts.SegmentBytes = 1+m.random.IntN(400), queue.MinSegmentBytes+m.random.Int64N(2000)
	opts.Now = func() time.Time { return queuetest.Start.Add(time.Duration(m.now.Add(1)) * time.Second) }
	return opts
}

func (m *tailModel) step() {
	steps := []struct {
		name   string
		weight int
		do     func()
	}{
		{"write", 8, m.write}, {"compact", 3, m.compact}, {"truncate", 2, m.truncate},
		{"reuse", 1, m.removeNewest}, {"snapshot", 1, m.snapshot}, {"restore", 1, m.restore},
	}
	total := 0
	for _, s := range steps {
		total += s.weight
	}
	n := m.random.IntN(total)
	for _, s := range steps {
		if n -= s.weight; n < 0 {
			m.log = append(m.log, s.name)
			s.do()
			break
		}
	}
	m.histories = append(m.histories, m.history)
}

// write appends a few entries. The writer is closed, or killed after a flush.
func (m *tailModel) write() {
	w, err := queue.OpenWriter(queuetest.Dir, m.options())
	require.NoError(m.t, err, "%v", m.log)
	entries := slices.Clone(m.history.entries)
	for range 1 + m.random.IntN(10) {
		m.serial++
		it := queuetest.Item{ID: fmt.Sprint("id-", m.random.IntN(6)), Document: fmt.Sprint(m.serial, " ", queuetest.Posting(m.serial)[:m.random.IntN(150)])}
		if m.random.IntN(6) == 0 {
			it.Deleted = true // its document only makes it unique
		}
		it.Put(m.t, w)
		entries = append(entries, it)
		switch m.random.IntN(6) {
		case 0:
			require.NoError(m.t, w.Flush())
		case 1:
			require.NoError(m.t, w.Seal())
		}
	}
	require.NoError(m.t, w.Flush())
	m.history.entries = entries
	if m.random.IntN(3) == 0 {
		m.source = m.source.CrashClone(vfs.KeepAll)
	}
	require.NoError(m.t, w.Close())
}

func (m *tailModel) compact() {
	_, err := maintain.Compact(context.Background(), queuetest.Dir, &maintain.CompactOptions{
		FS: m.source, MaxDead: 0.01 + m.random.Float64()/2, DeleteOriginals: m.random.IntN(2) == 0, Now: m.options().Now,
	})
	require.NoError(m.t, err, "%v", m.log)
}

func (m *tailModel) truncate() {
	if len(m.history.entries) == 0 {
		return
	}
	e := m.history.entries[m.random.IntN(len(m.history.entries))]
	from := e.At
	switch m.random.IntN(3) {
	case 0:
		from.Index++
	case 1:
		from = queue.Address{Segment: from.Segment + queue.SegmentID(m.random.IntN(2))}
	}
	report, err := maintain.Truncate(context.Background(), queuetest.Dir, from, &maintain.TruncateOptions{FS: m.source, LoseCompacted: true, Now: m.options().Now})
	require.NoError(m.t, err, "%v: %v", m.log, from)
	m.log = append(m.log, fmt.Sprint("to before ", report.From))
	if report.To == report.From {
		return
	}
	m.history.removed = true
	m.history.entries = slices.Clone(m.history.before(from))
	m.history.cuts = append(cutsBefore(m.history.cuts, report.From), segment.AddressRange{From: report.From, To: report.To})
}

// removeNewest removes all files of the newest segment, and the head: so the next writer
// reuses segment numbers.
func (m *tailModel) removeNewest() {
	l, err := segment.List(m.source, queuetest.Dir)
	require.NoError(m.t, err)
	if l.Last() == 0 {
		return
	}
	first := l.Last()
	for _, run := range l.Rewrites {
		if run.Last == l.Last() {
			first = min(first, run.First)
		}
	}
	names, err := m.source.List(queuetest.Dir)
	require.NoError(m.t, err)
	for _, name := range names {
		if file, ok := queue.ParseFileName(name); ok && file.Last >= first || name == queue.HeadName {
			require.NoError(m.t, m.source.Remove(queuetest.Dir+"/"+name))
		}
	}
	if first == 1 { // it is still the same queue
		require.NoError(m.t, queue.WriteHead(m.source, queuetest.Dir, queue.Head{Queue: queuetest.ID}))
	}
	m.history.removed = true
	m.history.entries = slices.Clone(m.history.before(queue.Address{Segment: first}))
	m.history.cuts = slices.DeleteFunc(slices.Clone(m.history.cuts), func(r segment.AddressRange) bool { return r.To.Segment > first })
}

func (m *tailModel) snapshot() {
	m.snapshots = append(m.snapshots, m.source.CrashClone(vfs.KeepAll))
	m.snapshotOf = append(m.snapshotOf, m.history)
}

func (m *tailModel) restore() {
	if len(m.snapshots) == 0 {
		return
	}
	i := m.random.IntN(len(m.snapshots))
	m.source, m.history = m.snapshots[i].CrashClone(vfs.KeepAll), m.snapshotOf[i]
}

// checkSource lets readers of the source continue, and keeps some positions.
func (m *tailModel) checkSource() {
	for i := range m.readers {
		m.requireOutcome(m.source, &m.readers[i])
	}
	r := queuetest.OpenReader(m.t, m.source)
	defer r.Close()
	for _, e := range queuetest.Scan(m.t, r, queue.Position{}) {
		known := &m.history.entries[len(m.history.before(e.At))].Next
		if *known == (queue.Position{}) {
			*known = e.Next
		}
		require.Equal(m.t, known.Proof, e.Next.Proof, "a rewrite changes no proof")
		if m.random.IntN(4) == 0 {
			m.readers = append(m.readers, modelReader{e.Next, m.history.before(e.Next.Next)})
		}
	}
	for len(m.readers) > 30 {
		i := 1 + m.random.IntN(len(m.readers)-1)
		m.readers = slices.Delete(m.readers, i, i+1)
	}
}

// requireOutcome scans the files of the source, or of a full copy, from a reader's
// position.
func (m *tailModel) requireOutcome(files *vfs.Mem, reader *modelReader) {
	r := queuetest.OpenReader(m.t, files)
	defer r.Close()
	p, now := reader.at.Next, m.history.before(reader.at.Next)
	rest, err := queuetest.TryScan(r, reader.at)
	about := fmt.Sprintf("%v\nposition %s, cuts %v", m.log, p, m.history.cuts)
	if sameEntries(reader.seen, now) {
		// A rewrite does not know the number of a block's entries. If all that are left
		// of it are kept, others may have been truncated.
		if errors.Is(err, queue.ErrTruncated) && slices.ContainsFunc(m.history.cuts, func(cut segment.AddressRange) bool {
			return cut.From.Index > 0 && cut.From.Compare(p) < 0 && cut.Holds(p) && len(m.history.before(cut.From)) == len(now)
		}) {
			return
		}
		require.NoError(m.t, err, about)
		var want []queuetest.Item
		for _, e := range queuetest.Scan(m.t, r, queue.Position{}) {
			if e.At.Compare(p) >= 0 {
				want = append(want, e)
			}
		}
		require.Equal(m.t, want, rest, about)
		m.requireAllLive(want, about)
		return
	}
	for _, cut := range m.history.cuts {
		if cut.From.Compare(p) < 0 && cut.Holds(p) && sameEntries((&queueHistory{entries: reader.seen}).before(cut.From), m.history.before(cut.From)) {
			require.ErrorIs(m.t, err, queue.ErrTruncated, about)
		}
	}
	if err == nil && m.unprovable(files, reader, &m.history) {
		return
	}
	m.requireStopped(r, reader, err, about)
}

// requireAllLive checks that a scan has delivered the newest entry of each id.
func (m *tailModel) requireAllLive(got []queuetest.Item, about string) {
	there := map[queue.Address]bool{}
	for _, e := range got {
		there[e.At] = true
	}
	newest := map[string]queuetest.Item{}
	for _, e := range m.history.entries {
		newest[e.ID] = e
	}
	for e := range maps.Values(newest) {
		if !e.Deleted && len(got) > 0 && e.At.Compare(got[0].At) >= 0 && !m.history.removed {
			require.True(m.t, there[e.At], "entry %v is missing: %s", e, about)
		}
	}
}

// requireStopped checks that a reader with other entries than those of the files neither
// continues nor catches up.
func (m *tailModel) requireStopped(r *queue.Reader, reader *modelReader, err error, about string) {
	m.t.Helper()
	if isFork(err) || errors.Is(err, queue.ErrTruncated) {
		require.NotErrorIs(m.t, err, queue.ErrCorrupt, about)
		return
	}
	require.ErrorIs(m.t, err, queue.ErrUnavailable, about)
	tail := queue.NewLook(r, reader.at)
	defer tail.Close()
	found, err := tail.Next(m.t.Context(), func(queue.Entry) error { return nil })
	require.NoError(m.t, err, about)
	require.False(m.t, found || tail.PlaceExists(), about)
}

// unprovable reports whether a reader's entries differ from a history only in the segment
// of its position, which has a rewrite that may lack the block that would prove it.
func (m *tailModel) unprovable(files *vfs.Mem, reader *modelReader, h *queueHistory) bool {
	start := queue.Address{Segment: reader.at.Next.Segment}
	l, err := segment.List(files, queuetest.Dir)
	require.NoError(m.t, err)
	return l.Rewritten(start.Segment) && sameEntries((&queueHistory{entries: reader.seen}).before(start), h.before(start))
}

func sameEntries(a, b []queuetest.Item) bool {
	return slices.EqualFunc(a, b, func(a, b queuetest.Item) bool { return a.At == b.At && a.Document == b.Document && a.ID == b.ID })
}

// checkCopy copies some files, whole or in part, and lets readers of the copy continue.
func (m *tailModel) checkCopy() {
	for range 1 + m.random.IntN(3) {
		m.copySome()
		for i := range m.copyReaders {
			m.readCopy(i)
		}
	}
	for len(m.copyReaders) > 10 {
		i := 1 + m.random.IntN(len(m.copyReaders)-1)
		m.copyReaders = slices.Delete(m.copyReaders, i, i+1)
	}
}

func (m *tailModel) sourceFiles() map[string][]byte {
	names, err := m.source.List(queuetest.Dir)
	require.NoError(m.t, err)
	files := map[string][]byte{}
	for _, name := range names {
		if _, ok := queue.ParseFileName(name); ok || name == queue.HeadName {
			files[name], err = vfs.ReadFile(m.source, queuetest.Dir+"/"+name)
			require.NoError(m.t, err)
		}
	}
	return files
}

func (m *tailModel) copySome() {
	files := m.sourceFiles()
	for _, name := range slices.Sorted(maps.Keys(files)) {
		content := files[name]
		switch m.random.IntN(4) {
		case 0, 1:
			require.NoError(m.t, vfs.WriteFileAtomic(m.copy, queuetest.Dir+"/"+name, content))
		case 2:
			if name != queue.HeadName { // others are written in place
				copyFile(m.t, m.copy, name, content, "in place", m.random.IntN(len(content)+1), m.random.IntN(2) == 0)
			}
		}
	}
	if m.random.IntN(3) == 0 {
		m.removeGone(files)
	}
}

func (m *tailModel) removeGone(files map[string][]byte) {
	names, err := m.copy.List(queuetest.Dir)
	require.NoError(m.t, err)
	for _, name := range names {
		if _, there := files[name]; !there {
			require.NoError(m.t, m.copy.Remove(queuetest.Dir+"/"+name))
		}
	}
}

func (m *tailModel) copyAll() {
	files := m.sourceFiles()
	m.removeGone(files)
	for name, content := range files {
		require.NoError(m.t, vfs.WriteFileAtomic(m.copy, queuetest.Dir+"/"+name, content))
	}
}

// readCopy lets a reader of the copy continue. The entries that it has read must be a
// prefix of some history.
func (m *tailModel) readCopy(i int) {
	reader := m.copyReaders[i]
	r := queuetest.OpenReader(m.t, m.copy)
	defer r.Close()
	got, _ := queuetest.TryScan(r, reader.at)
	if len(got) == 0 {
		return
	}
	about := fmt.Sprintf("%v\ncopy, position %s, read %v", m.log, reader.at.Next, got)
	end := got[len(got)-1].Next
	for _, h := range slices.Backward(m.histories) {
		if sameEntries(reader.seen, h.before(reader.at.Next)) && partOf(got, &h) {
			m.copyReaders = append(m.copyReaders, modelReader{end, h.before(end.Next)})
			return
		}
	}
	for _, h := range m.histories {
		if m.unprovable(m.copy, &reader, &h) {
			return
		}
	}
	require.Fail(m.t, "entries of no history were read", about)
}

// partOf reports whether all entries that were read belong to a history. The proof
// distinguishes entries with the same id and address.
func partOf(got []queuetest.Item, h *queueHistory) bool {
	for _, e := range got {
		i := len(h.before(e.At))
		if i == len(h.entries) || h.entries[i].At != e.At || h.entries[i].ID != e.ID || h.entries[i].Next.Proof != e.Next.Proof {
			return false
		}
	}
	return true
}

// cutsBefore returns the part of the truncated ranges before an address.
func cutsBefore(cuts []segment.AddressRange, end queue.Address) (left []segment.AddressRange) {
	for _, cut := range cuts {
		if cut.From.Compare(end) < 0 {
			if cut.To.Compare(end) > 0 {
				cut.To = end
			}
			left = append(left, cut)
		}
	}
	return left
}
