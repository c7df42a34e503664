package lsm

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/internal/crashtest"
	"docstore/internal/testseed"
	"docstore/internal/vfs"
)

// TestModel runs random operations on a store and a map, with several sets of options,
// and compares all results.
func TestModel(t *testing.T) {
	for name, o := range map[string]Options{
		"defaults":                     {},
		"small":                        {MemtableBytes: minMemtableBytes},
		"power loss":                   {MemtableBytes: 16 << 10, Durability: PowerLoss},
		"no log":                       {MemtableBytes: 16 << 10, Durability: None},
		"no filters":                   {MemtableBytes: 8 << 10, FilterBytes: -1},
		"few pages":                    {MemtableBytes: 8 << 10, FilterBytes: 2 << 10, FalsePositiveRate: 0.3},
		"under budget":                 {MemtableBytes: 1 << 20, Budget: NewBudget(512 << 10)},
		"always merging":               {MemtableBytes: minMemtableBytes, MergeRule: MergeAlways},
		"never merging":                {MemtableBytes: 32 << 10, MergeRule: MergeNever},
		"tight filters":                {MemtableBytes: 8 << 10, FalsePositiveRate: 0.001},
		"on the real disk":             {MemtableBytes: 16 << 10, FS: vfs.OS},
		"power loss, small, few pages": {MemtableBytes: minMemtableBytes, Durability: PowerLoss, FilterBytes: 1 << 10},
		"no log, no filters, budget":   {MemtableBytes: 64 << 10, Durability: None, FilterBytes: -1, Budget: NewBudget(1 << 20)},
	} {
		t.Run(name, func(t *testing.T) {
			tally := crashtest.NewTally(t, "seeds of the model")
			for range crashtest.Share(1, 80) {
				runModel(t, o)
				tally.Case()
			}
		})
	}
}

// runModel runs some steps on a store and compares its contents at the end.
func runModel(t *testing.T, o Options) {
	m := &model{t: t, r: testseed.Rand(t), options: o, dir: "db", state: map[string]string{}}
	if o.FS == nil {
		m.options.FS = vfs.NewMem()
	} else {
		m.dir = filepath.Join(t.TempDir(), "db")
	}
	m.reopen()
	for range 1500 {
		m.step()
	}
	m.dropSnapshots()
	m.compareAll(m.db.NewIter(nil), m.state)
	require.NoError(t, m.db.WaitIdle(t.Context()))
	require.NoError(t, m.db.Check())
	m.reopen()
	m.compareAll(m.db.NewIter(nil), m.state)
	require.NoError(t, m.db.Close())
	if m.follower != nil {
		require.NoError(t, m.follower.Close())
	}
}

type model struct {
	t           *testing.T
	r           *rand.Rand
	options     Options
	dir         string
	checkpoints int
	db          *DB
	follower    *DB // nil if none is open
	state       map[string]string
	snapshots   []modelSnapshot
}

type modelSnapshot struct {
	snapshot *Snapshot
	state    map[string]string
}

func (m *model) key() []byte {
	switch m.r.IntN(20) {
	case 0:
		return nil
	case 1:
		return bytes.Repeat([]byte{byte(m.r.IntN(3))}, m.r.IntN(20))
	}
	return fmt.Appendf(nil, "key%03d", m.r.IntN(400))
}

func (m *model) value() []byte {
	n := m.r.IntN(60)
	if m.r.IntN(100) == 0 {
		n = m.r.IntN(20 << 10) // more than the smallest memtable
	}
	value := make([]byte, n)
	for i := range value {
		value[i] = byte(m.r.Uint32())
	}
	return value
}

func (m *model) step() {
	t := m.t
	switch p := m.r.IntN(1000); {
	case p < 350:
		key, value := m.key(), m.value()
		require.NoError(t, m.db.Set(key, value))
		m.state[string(key)] = string(value)
	case p < 450:
		key := m.key()
		require.NoError(t, m.db.Delete(key))
		delete(m.state, string(key))
	case p < 550:
		m.batch()
	case p < 800:
		key := m.key()
		m.compare(m.db, m.state, key)
		if m.r.IntN(10) == 0 {
			m.compareMany()
		}
		if len(m.snapshots) > 0 {
			s := m.snapshots[m.r.IntN(len(m.snapshots))]
			m.compare(s.snapshot, s.state, key)
		}
	case p < 900:
		m.walk(m.db.NewIter, m.state)
	case p < 930:
		if len(m.snapshots) > 0 {
			s := m.snapshots[m.r.IntN(len(m.snapshots))]
			m.walk(s.snapshot.NewIter, s.state)
		}
	case p < 950:
		m.toggleSnapshot()
	case p < 970:
		require.NoError(t, m.db.Flush())
	case p < 980:
		require.NoError(t, m.db.Sync())
	case p < 985:
		require.NoError(t, m.db.Check())
	case p < 990:
		m.checkpoint()
	case p < 993:
		m.readOnly()
	case p < 996:
		m.follow()
	default:
		m.dropSnapshots()
		m.reopen()
	}
}

func (m *model) batch() {
	var b Batch
	after := maps.Clone(m.state)
	for range m.r.IntN(20) {
		key := m.key()
		if m.r.IntN(3) == 0 {
			require.NoError(m.t, b.Delete(key))
			delete(after, string(key))
		} else {
			value := m.value()
			require.NoError(m.t, b.Set(key, value))
			after[string(key)] = string(value)
		}
	}
	require.NoError(m.t, m.db.Apply(&b))
	m.state = after
}

func (m *model) compare(db interface {
	Get(dst, key []byte) ([]byte, error)
}, state map[string]string, key []byte) {
	got, err := db.Get(nil, key)
	want, found := state[string(key)]
	if !found {
		require.ErrorIs(m.t, err, ErrNotFound, "key %q", key)
		return
	}
	require.NoError(m.t, err, "key %q", key)
	require.Equal(m.t, want, string(got), "key %q", key)
}

// compareMany looks up more keys than a group of MultiGet has, some of them twice.
func (m *model) compareMany() {
	keys := make([][]byte, m.r.IntN(3*groupKeys))
	for i := range keys {
		keys[i] = m.key()
	}
	answered := make([]bool, len(keys))
	require.NoError(m.t, m.db.MultiGet(keys, func(i int, value []byte, err error) error {
		require.False(m.t, answered[i])
		answered[i] = true
		if want, found := m.state[string(keys[i])]; !found {
			require.ErrorIs(m.t, err, ErrNotFound, "key %q", keys[i])
		} else {
			require.NoError(m.t, err, "key %q", keys[i])
			require.Equal(m.t, want, string(value), "key %q", keys[i])
		}
		return nil
	}))
	require.NotContains(m.t, answered, false)
}

// walk moves an iterator with random bounds at random.
func (m *model) walk(newIter func(*IterOptions) *Iterator, state map[string]string) {
	var o IterOptions
	if m.r.IntN(2) == 0 {
		o.LowerBound = m.key()
	}
	if m.r.IntN(2) == 0 {
		o.UpperBound = m.key()
	}
	if m.r.IntN(3) == 0 {
		o.Prefix = fmt.Appendf(nil, "key%d", m.r.IntN(4))
	}
	keys := slices.Sorted(maps.Keys(state))
	keys = slices.DeleteFunc(keys, func(key string) bool {
		return o.LowerBound != nil && key < string(o.LowerBound) ||
			o.UpperBound != nil && key >= string(o.UpperBound) ||
			!bytes.HasPrefix([]byte(key), o.Prefix)
	})
	it := newIter(&o)
	defer func() { require.NoError(m.t, it.Close()) }()
	if m.options.Budget != nil && it.Err() != nil {
		require.ErrorIs(m.t, it.Err(), ErrBudget)
		return
	}
	at := -1 // index in keys; -1 and len(keys) are past the ends
	for range m.r.IntN(30) {
		target := m.key()
		from, _ := slices.BinarySearch(keys, string(target))
		switch m.r.IntN(8) {
		case 0:
			it.First()
			at = 0
		case 1:
			it.Last()
			at = len(keys) - 1
		case 2:
			it.SeekGE(target)
			at = from
		case 3:
			it.SeekLT(target)
			at = from - 1
		case 4, 5:
			it.Next()
			at = min(at+1, len(keys))
		default:
			if at == -1 && it.place == placeNew {
				at = len(keys)
			}
			it.Prev()
			at = max(at-1, -1)
		}
		require.NoError(m.t, it.Err())
		on := at >= 0 && at < len(keys)
		require.Equal(m.t, on, it.Valid(), "at %d of %d", at, len(keys))
		if on {
			require.Equal(m.t, keys[at], string(it.Key()))
			require.Equal(m.t, state[keys[at]], string(it.Value()))
		}
	}
}

func (m *model) compareAll(it *Iterator, state map[string]string) {
	keys := slices.Sorted(maps.Keys(state))
	i := 0
	for ok := it.First(); ok; ok = it.Next() {
		require.Less(m.t, i, len(keys))
		require.Equal(m.t, keys[i], string(it.Key()))
		require.Equal(m.t, state[keys[i]], string(it.Value()))
		i++
	}
	require.NoError(m.t, it.Err())
	require.Equal(m.t, len(keys), i)
	require.NoError(m.t, it.Close())
}

func (m *model) toggleSnapshot() {
	if len(m.snapshots) >= 3 {
		require.NoError(m.t, m.snapshots[0].snapshot.Close())
		m.snapshots = m.snapshots[1:]
		return
	}
	s := m.db.NewSnapshot()
	if s.err != nil {
		require.ErrorIs(m.t, s.err, ErrBudget)
		require.NotNil(m.t, m.options.Budget)
		return
	}
	m.snapshots = append(m.snapshots, modelSnapshot{s, maps.Clone(m.state)})
}

func (m *model) dropSnapshots() {
	for _, s := range m.snapshots {
		require.NoError(m.t, s.snapshot.Close())
	}
	m.snapshots = nil
}

func (m *model) reopen() {
	if m.follower != nil { // of the directory, which may be replaced
		require.NoError(m.t, m.follower.Close())
		m.follower = nil
	}
	if m.db != nil {
		require.NoError(m.t, m.db.Close())
	}
	var err error
	m.db, err = Open(m.dir, &m.options)
	require.NoError(m.t, err)
}

// checkpoint creates a checkpoint, compares it, and sometimes continues with it.
func (m *model) checkpoint() {
	m.checkpoints++
	dir := filepath.Join(filepath.Dir(m.dir), fmt.Sprintf("checkpoint%d", m.checkpoints))
	require.NoError(m.t, m.db.Checkpoint(dir))
	require.ErrorIs(m.t, m.db.Checkpoint(dir), ErrExists)
	if m.r.IntN(2) == 0 {
		m.dropSnapshots()
		m.dir = dir
		m.reopen()
		return
	}
	o := m.options
	o.Budget = nil
	db, err := Open(dir, &o)
	require.NoError(m.t, err)
	m.compareAll(db.NewIter(nil), m.state)
	require.NoError(m.t, db.Check())
	require.NoError(m.t, db.Close())
}

// follow refreshes a follower and compares it with the flushed state.
func (m *model) follow() {
	require.NoError(m.t, m.db.Flush())
	if m.follower == nil {
		o := m.options
		o.Follow, o.Budget = true, nil
		var err error
		m.follower, err = Open(m.dir, &o)
		require.NoError(m.t, err)
	}
	_, err := m.follower.Refresh(m.t.Context())
	require.NoError(m.t, err)
	m.compareAll(m.follower.NewIter(nil), m.state)
}

// readOnly opens the store read-only during writing and compares it.
func (m *model) readOnly() {
	o := m.options
	o.ReadOnly, o.Budget = true, nil
	o.Follow = o.Durability == None
	if o.Follow {
		require.NoError(m.t, m.db.Flush())
	}
	db, err := Open(m.dir, &o)
	require.NoError(m.t, err)
	m.compareAll(db.NewIter(nil), m.state)
	require.NoError(m.t, db.Check())
	require.ErrorIs(m.t, db.Set(nil, nil), ErrReadOnly)
	require.NoError(m.t, db.Close())
}
