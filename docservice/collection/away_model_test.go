package collection

import (
	"bytes"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/errors"

	"docstore/docservice"
	"docstore/internal/crashtest"
	"docstore/internal/testseed"
	"docstore/internal/vfs"
	"docstore/queue"
	"docstore/queue/maintain"
)

// TestAwayModel runs random histories of a queue and of a server that is away at times: it is
// stopped, crashes, gets the index of an earlier checkpoint, builds another one, or lags behind,
// while documents are appended, deleted, expire and are withdrawn, and while segments are
// compacted and erased. memcached keeps every document of all this time. Each answer of a ready
// server is that of a map: gets, batches, scans, counts, the census and the comparison of index
// and queue.
func TestAwayModel(t *testing.T) {
	random := testseed.Rand(t)
	m := newAwayModel(t, random)
	for range crashtest.Share(1500, 10_000) {
		m.step()
	}
	m.copy()
	m.comeBack()
	m.checkAll()
}

// awayDocument is a document in the map.
type awayDocument struct {
	content string
	expires time.Time // zero: never
}

type awayState map[string]awayDocument

// at returns the documents that have not expired.
func (s awayState) at(now time.Time) map[string]string {
	live := map[string]string{}
	for id, d := range s {
		if d.expires.IsZero() || now.Before(d.expires) {
			live[id] = d.content
		}
	}
	return live
}

type awayModel struct {
	t              *testing.T
	random         *rand.Rand
	source, server *fixture
	serial         int
	log            []string

	state    awayState      // of the source
	versions map[string]int // every document that has ever existed, with its number
	// kept is a state to which the source can be truncated; nil: none.
	kept       awayState
	keptEnd    queue.Address
	keptSerial int
	withdrawn  map[int]bool // numbers of documents

	copied     awayState    // of the server's queue
	copiedGone map[int]bool // withdrawn
	copiedEnd  queue.Address
	sourceInfo map[string]vfs.Info // of the files that were copied
	collection *Collection         // nil: away
	checkpoint map[string][]byte   // the files of an index, by path; nil: none
}

func newAwayModel(t *testing.T, random *rand.Rand) *awayModel {
	m := &awayModel{
		t: t, random: random, source: newMemFixture(t), server: newMemFixture(t),
		state: awayState{}, versions: map[string]int{}, withdrawn: map[int]bool{}, copied: awayState{}, sourceInfo: map[string]vfs.Info{},
	}
	cache, _ := newMemoryCache(t)
	t.Cleanup(m.leave)
	m.server.clock = m.source.clock
	o := &m.server.options
	o.Cache, o.Now = cache, m.source.clock.Now
	o.MemtableBytes = 16 << 10
	if random.IntN(2) == 0 {
		o.SweepInterval = time.Millisecond
	}
	if random.IntN(4) == 0 {
		o.VerifyInterval = time.Millisecond
	}
	return m
}

func (m *awayModel) step() {
	steps := []struct {
		name   string
		weight int
		do     func()
	}{
		{"write", 40, m.write}, {"seal", 6, m.seal}, {"time", 3, m.passTime}, {"keep", 2, m.keep}, {"withdraw", 1, m.withdraw},
		{"compact", 7, m.compact}, {"copy", 8, m.copy}, {"leave", 3, m.leave}, {"crash", 1, m.crash},
		{"come back", 5, m.comeBack}, {"look", 10, m.look}, {"check", 4, m.checkAll}, {"checkpoint", 1, m.takeCheckpoint},
		{"restore", 1, m.restore}, {"reindex", 1, m.reindex},
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
}

// require fails the test, with the last steps, unless ok.
func (m *awayModel) require(ok bool, format string, args ...any) {
	if !ok {
		m.t.Helper()
		m.t.Fatalf("%s, after %d steps: %s", fmt.Sprintf(format, args...), len(m.log), m.log[max(0, len(m.log)-100):])
	}
}

func (m *awayModel) noError(err error) {
	m.t.Helper()
	m.require(err == nil, "%+v", err)
}

func (m *awayModel) id() string { return fmt.Sprint("id-", m.random.IntN(25)) }

func (m *awayModel) write() {
	for range 1 + m.random.IntN(4) {
		id := m.id()
		if m.random.IntN(3) == 0 {
			_, err := m.source.queueWriter().Delete([]byte(id))
			m.noError(err)
			delete(m.state, id)
			continue
		}
		m.serial++
		d := awayDocument{content: fmt.Sprintf("%s %d %s", id, m.serial, strings.Repeat("x", m.random.IntN(60)))}
		if m.random.IntN(5) == 0 {
			d.expires = m.source.clock.Now().Add(time.Duration(1+m.random.IntN(300)) * time.Minute)
		}
		_, err := m.source.queueWriter().Put(queue.Record{ID: []byte(id), Document: []byte(d.content), Expires: d.expires})
		m.noError(err)
		m.state[id], m.versions[d.content] = d, m.serial
	}
	m.noError(m.source.writer.Flush())
}

func (m *awayModel) seal() { m.source.seal() }

func (m *awayModel) passTime() {
	m.source.clock.advance(time.Duration(m.random.IntN(90)) * time.Minute)
}

// keep makes the present state one that withdraw can return to.
func (m *awayModel) keep() {
	m.kept, m.keptEnd, m.keptSerial = maps.Clone(m.state), m.end(), m.serial
}

// end returns the end of the queue at the source.
func (m *awayModel) end() queue.Address {
	r, err := queue.OpenReader(m.source.queueDir, &queue.ReaderOptions{FS: m.source.fs})
	m.noError(err)
	defer r.Close()
	return r.End().Next
}

// withdraw truncates the entries since keep.
func (m *awayModel) withdraw() {
	if m.kept == nil || m.keptEnd.IsZero() {
		return
	}
	m.closeWriter()
	_, err := maintain.Truncate(m.t.Context(), m.source.queueDir, m.keptEnd, &maintain.TruncateOptions{FS: m.source.fs, Now: m.source.clock.Now})
	m.noError(err)
	m.state, m.kept = m.kept, nil
	for n := m.keptSerial + 1; n <= m.serial; n++ {
		m.withdrawn[n] = true
	}
}

func (m *awayModel) closeWriter() {
	if m.source.writer != nil {
		m.noError(m.source.writer.Close())
		m.source.writer = nil
	}
}

func (m *awayModel) compact() {
	m.kept = nil // Truncate would refuse it
	_, err := maintain.Compact(m.t.Context(), m.source.queueDir, &maintain.CompactOptions{
		FS: m.source.fs, MaxDead: 0.01 + 0.4*m.random.Float64(), Now: m.source.clock.Now,
		EraseDead: m.random.IntN(3) == 0, EraseAfter: time.Duration(m.random.IntN(30)) * time.Minute,
		DeleteOriginals: m.random.IntN(4) > 0, DeleteAfter: time.Duration(m.random.IntN(2)) * time.Minute,
	})
	m.noError(err)
}

// copy makes the server's queue a copy of the source's.
func (m *awayModel) copy() {
	m.server.copyQueue(m.source, m.sourceInfo)
	m.copied, m.copiedEnd, m.copiedGone = maps.Clone(m.state), m.end(), maps.Clone(m.withdrawn)
}

func (m *awayModel) leave() {
	if m.collection != nil {
		m.noError(m.collection.Close())
		m.collection = nil
	}
}

// crash cuts the power of the server.
func (m *awayModel) crash() {
	if m.collection == nil {
		return
	}
	files := m.server.fs.(*vfs.Mem).CrashClone(vfs.KeepRandom(m.random.Uint64()))
	m.leave()
	m.server.fs, m.server.options.FS = files, files
}

// comeBack starts the server, and asks it before it is ready.
func (m *awayModel) comeBack() {
	if m.collection != nil || m.copiedEnd.IsZero() {
		return
	}
	var err error
	m.collection, err = Open("jobs", m.server.queueDir, m.server.dir, &m.server.options)
	m.noError(err)
	for range m.random.IntN(5) {
		id := m.id()
		document, err := m.collection.Get(nil, []byte(id))
		if err == nil {
			n := m.versions[string(document)]
			m.require(n > 0 && !m.copiedGone[n] && strings.HasPrefix(string(document), id+" "), "%s is %q", id, document)
		} else if !errors.Is(err, docservice.ErrNotFound) {
			m.require(errors.Is(err, docservice.ErrUnavailable), "%s: %v", id, err)
		}
	}
}

// await waits until the server has read its queue to the end.
func (m *awayModel) await() {
	ctx := soon(m.t)
	for {
		h := m.collection.serving.Load().health
		h.mu.Lock()
		changed := h.mu.changed
		h.mu.Unlock()
		if h.gap.Load() == nil && h.tailState().position.Next == m.copiedEnd {
			return
		}
		select {
		case <-changed:
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
			m.require(false, "%+v, the queue ends at %s", m.collection.Status(), m.copiedEnd)
		}
	}
}

// look asks for a few documents.
func (m *awayModel) look() {
	if m.collection == nil {
		return
	}
	m.await()
	live := m.copied.at(m.source.clock.Now())
	for range 3 {
		id := m.id()
		document, err := m.collection.Get(nil, []byte(id))
		m.answer(live, id, string(document), err)
	}
}

// answer requires an answer to be that of the map.
func (m *awayModel) answer(live map[string]string, id, document string, err error) {
	m.t.Helper()
	want, ok := live[id]
	if ok {
		m.require(err == nil && document == want, "%s is %q, %v; want %q", id, document, err, want)
	} else {
		m.require(errors.Is(err, docservice.ErrNotFound), "%s is %q, %v; want none", id, document, err)
	}
}

// scan scans again if another index takes over meanwhile.
func (m *awayModel) scan(o docservice.ScanOptions, fn func(id []byte, answer Answer)) {
	for {
		serving := m.collection.serving.Load()
		var ids [][]byte
		var answers []Answer
		err := m.collection.Scan(m.t.Context(), o, func(id []byte, answer Answer) error {
			answer.Document = bytes.Clone(answer.Document)
			ids, answers = append(ids, bytes.Clone(id)), append(answers, answer)
			return answer.Err
		})
		if err != nil && m.collection.serving.Load() != serving {
			continue
		}
		m.noError(err)
		for i := range ids {
			fn(ids[i], answers[i])
		}
		return
	}
}

// checkAll compares every kind of answer with the map.
func (m *awayModel) checkAll() {
	if m.collection == nil {
		return
	}
	m.await()
	c, live := m.collection, m.copied.at(m.source.clock.Now())
	ids := [][]byte{[]byte("none")}
	for i := range 25 {
		ids = append(ids, fmt.Append(nil, "id-", i))
	}
	kinds := []func(){
		func() {
			for _, id := range ids {
				document, err := c.Get(nil, id)
				m.answer(live, string(id), string(document), err)
			}
		},
		func() {
			_, answers, err := c.GetMany(nil, ids, docservice.MaxReplyBytes)
			m.noError(err)
			for i, answer := range answers {
				m.answer(live, string(ids[i]), string(answer.Document), answer.Err)
			}
		},
		func() {
			found := map[string]string{}
			m.scan(docservice.ScanOptions{}, func(id []byte, answer Answer) { found[string(id)] = string(answer.Document) })
			m.require(maps.Equal(live, found), "scanned %v, want %v", found, live)
		},
		func() {
			var found []string
			m.scan(docservice.ScanOptions{IDsOnly: true}, func(id []byte, _ Answer) { found = append(found, string(id)) })
			want := slices.Sorted(maps.Keys(live))
			m.require(slices.Equal(want, found), "listed %v, want %v", found, want)
		},
		func() {
			count, err := c.Count(m.t.Context(), nil)
			if errors.Is(err, errReplaced) {
				return
			}
			m.noError(err)
			m.require(count == int64(len(live)), "counted %d, want %d", count, len(live))
		},
		func() {
			census, err := c.Census(m.t.Context())
			m.noError(err)
			var count int64
			for _, of := range census {
				count += of.Documents
			}
			m.require(count == int64(len(live)), "census of %d, want %d", count, len(live))
		},
		func() {
			for _, id := range ids {
				l, err := c.Locate(id)
				_, want := live[string(id)]
				m.require(want == (err == nil && !l.Expired), "%s is located: %+v, %v", id, l, err)
			}
		},
		func() {
			compared, err := compareIndex(m.t.Context(), m.server.fs, m.server.dir, m.server.queueDir, m.source.clock.Now(), CompareMemory, nil)
			if !errors.Is(err, fs.ErrNotExist) { // a takeover may remove the index
				m.noError(err)
				m.require(compared.Differences() == 0, "%+v", compared)
			}
		},
	}
	m.random.Shuffle(len(kinds), func(i, j int) { kinds[i], kinds[j] = kinds[j], kinds[i] })
	for _, check := range kinds {
		check()
	}
}

// takeCheckpoint copies the index of a server that is away.
func (m *awayModel) takeCheckpoint() {
	m.leave()
	m.checkpoint = map[string][]byte{}
	m.walk(m.server.dir, func(path string) {
		content, err := vfs.ReadFile(m.server.fs, path)
		m.noError(err)
		m.checkpoint[path] = content
	})
}

// walk calls fn for the files in an index's directory.
func (m *awayModel) walk(dir string, fn func(path string)) {
	names, err := m.server.fs.List(dir)
	m.noError(err)
	for _, name := range names {
		path := filepath.Join(dir, name)
		info, err := m.server.fs.Stat(path)
		m.noError(err)
		if info.Dir {
			m.walk(path, fn)
		} else {
			fn(path)
		}
	}
}

// restore replaces the index by the checkpoint, or removes it.
func (m *awayModel) restore() {
	m.leave()
	m.noError(m.server.fs.RemoveAll(m.server.dir))
	m.noError(m.server.fs.MkdirAll(m.server.dir))
	for path, content := range m.checkpoint {
		m.noError(m.server.fs.MkdirAll(filepath.Dir(path)))
		m.noError(vfs.WriteFileAtomic(m.server.fs, path, content))
		m.noError(m.server.fs.SyncDir(m.server.dir))
	}
	m.noError(m.server.fs.SyncDir(filepath.Dir(m.server.dir)))
	if m.random.IntN(2) == 0 {
		m.checkpoint = nil // the next restore begins with nothing
	}
}

// reindex requests another index.
func (m *awayModel) reindex() {
	if numbers, err := listIndexes(m.server.fs, m.server.dir); err != nil || len(numbers) > 0 {
		m.noError(err)
		m.noError(RequestReindex(m.server.fs, m.server.dir))
	}
}
