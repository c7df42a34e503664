package ingest_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"docstore/ingest"
	"docstore/internal/canary"
	"docstore/internal/crashtest"
	"docstore/internal/testseed"
	"docstore/internal/vfs"
	"docstore/queue"
	"docstore/queue/shard"
	"docstore/queue/shardset"
)

// state is a state of a collection: documents by id.
type state map[string]string

// source returns the state as a source, in a random order.
func (s state) source(random *rand.Rand) *stateSource {
	in := &stateSource{}
	for _, id := range slices.Sorted(maps.Keys(s)) {
		in.records = append(in.records, ingest.Record{ID: []byte(id), Document: []byte(s[id])})
	}
	random.Shuffle(len(in.records), func(i, j int) { in.records[i], in.records[j] = in.records[j], in.records[i] })
	return in
}

// stateSource is a source of records, which fails behind them if err is set.
type stateSource struct {
	records []ingest.Record
	read    int
	err     error
}

func (s *stateSource) Next(context.Context) (*ingest.Batch, error) {
	first := s.read
	if first == len(s.records) {
		if s.err != nil {
			return nil, s.err
		}
		return nil, io.EOF
	}
	s.read = min(first+7, len(s.records))
	return &ingest.Batch{
		Records: s.records[first:s.read], Bytes: 1,
		AppendCursor: func(dst []byte, _ int) []byte { return dst },
		Place:        func(i int) string { return fmt.Sprint("input:", first+i+1) },
	}, nil
}

func (s *stateSource) Durable([]byte)       {}
func (s *stateSource) Lag() (int64, string) { return 0, "" }
func (s *stateSource) Close() error         { return nil }

// replaced is a collection that is replaced.
type replaced struct {
	fs     vfs.FS
	layout shard.Layout
	now    time.Time
}

func newReplaced(layout shard.Layout) replaced {
	return replaced{vfs.NewMem(), layout, time.Unix(1_800_000_000, 0)}
}

func (c replaced) replace(ctx context.Context, from ingest.Source, maxDeletes float64) (ingest.Replaced, error) {
	w, err := shardset.Open(testDir, &shardset.Options{FS: c.fs, Layout: c.layout, Codec: "none", SegmentBytes: queue.MaxSegmentBytes})
	if err != nil {
		return ingest.Replaced{}, err
	}
	done, err := ingest.Replace(ctx, from, w, ingest.ReplaceOptions{
		FS: c.fs, Dir: testDir, MaxDeletes: maxDeletes, Now: func() time.Time { return c.now },
	})
	return done, errors.Join(err, w.Close())
}

// put appends records as another program would.
func (c replaced) put(t *testing.T, records ...queue.Record) {
	w, err := shardset.Open(testDir, &shardset.Options{FS: c.fs, Layout: c.layout})
	require.NoError(t, err)
	for _, r := range records {
		require.NoError(t, w.Put(r))
	}
	require.NoError(t, w.Close())
}

// stateOf returns the live documents, and the number of entries.
func (c replaced) stateOf() (s state, entries int64, err error) {
	s = state{}
	for i := range c.layout.Shards {
		r, err := queue.OpenReader(c.layout.Dir(testDir, i), &queue.ReaderOptions{FS: c.fs})
		if err != nil {
			return nil, 0, err
		}
		defer r.Close()
		err = r.Scan(context.Background(), queue.Position{}, func(e queue.Entry) error {
			entries++
			delete(s, string(e.ID))
			if e.Deleted || !e.Expires.IsZero() && !e.Expires.After(c.now) {
				return nil
			}
			document, err := r.Document(nil, e.Address)
			s[string(e.ID)] = string(document)
			return err
		})
		if err != nil {
			return nil, 0, err
		}
	}
	return s, entries, nil
}

// requireFiles checks that no temporary file is left.
func (c replaced) requireFiles(t *testing.T) {
	names, err := c.fs.List(testDir)
	require.NoError(t, err)
	for _, name := range names {
		require.False(t, strings.HasSuffix(name, vfs.TmpSuffix), "%s is left", name)
	}
}

// The collection has each state, with as many entries as documents have changed, whatever other
// programs append between two states.
func TestReplaceModel(t *testing.T) {
	random := testseed.Rand(t)
	for _, layout := range testLayouts {
		t.Run(fmt.Sprint(layout.Shards), func(t *testing.T) {
			c := newReplaced(layout)
			before, entries := state{}, int64(0)
			for range 10 {
				next := maps.Clone(before)
				for range random.IntN(50) {
					if id := fmt.Sprint(random.IntN(60)); random.IntN(3) == 0 {
						delete(next, id)
					} else {
						next[id] = fmt.Sprint("v", random.IntN(3))
					}
				}
				var want ingest.Replaced
				for id, document := range next {
					switch old, had := before[id]; {
					case !had:
						want.Added++
					case old == document:
						want.Equal++
					default:
						want.Changed++
					}
				}
				want.Deleted = int64(len(before)) - want.Equal - want.Changed
				done, err := c.replace(t.Context(), next.source(random), 1)
				require.NoError(t, err)
				require.Equal(t, want, done)
				has, now, err := c.stateOf()
				require.NoError(t, err)
				require.Equal(t, next, has)
				require.Equal(t, entries+want.Changed+want.Added+want.Deleted, now)
				c.requireFiles(t)
				before, entries = next, now
				if random.IntN(2) == 0 {
					c.put(t, queue.Record{ID: []byte("1"), Document: []byte("other")}, queue.Record{ID: []byte("2"), Delete: true})
					before, entries, err = c.stateOf()
					require.NoError(t, err)
				}
			}
		})
	}
}

// A document that has expired is missing in the state and in the collection. Another expiry is a
// change.
func TestReplaceExpiring(t *testing.T) {
	c := newReplaced(testLayouts[0])
	at := func(hours int) time.Time { return c.now.Add(time.Duration(hours) * time.Hour) }
	records := func(expiries ...time.Time) *stateSource {
		in := &stateSource{}
		for i, e := range expiries {
			in.records = append(in.records, ingest.Record{ID: fmt.Append(nil, i), Document: []byte("x"), Expires: e})
		}
		return in
	}
	done, err := c.replace(t.Context(), records(at(1), at(2), at(-1), time.Time{}), 1)
	require.NoError(t, err)
	require.Equal(t, ingest.Replaced{Added: 3}, done)
	done, err = c.replace(t.Context(), records(at(1), at(3), at(-1), time.Time{}), 1)
	require.NoError(t, err)
	require.Equal(t, ingest.Replaced{Equal: 2, Changed: 1}, done)
	c.now = at(1)
	done, err = c.replace(t.Context(), (&state{}).source(testseed.Rand(t)), 1)
	require.NoError(t, err)
	require.Equal(t, ingest.Replaced{Deleted: 2}, done, "the one that has expired needs no delete")
}

// Canaries are no documents of a state: they are not deleted and in no count.
func TestReplaceLeavesCanaries(t *testing.T) {
	c := newReplaced(testLayouts[1])
	next := state{"a": "x"}
	_, err := c.replace(t.Context(), next.source(testseed.Rand(t)), 1)
	require.NoError(t, err)
	for range 2 { // the second time with another canary
		for _, id := range canary.IDs(c.layout.Shards, c.layout.Shard) {
			c.put(t, queue.Record{ID: id, Document: []byte("{}"), Expires: c.now.Add(canary.Life)})
		}
		_, before, err := c.stateOf()
		require.NoError(t, err)
		done, err := c.replace(t.Context(), next.source(testseed.Rand(t)), 0)
		require.NoError(t, err)
		require.Equal(t, ingest.Replaced{Equal: 1}, done)
		_, entries, err := c.stateOf()
		require.NoError(t, err)
		require.Equal(t, before, entries)
	}
}

// Records that are the documents of the collection are not parsed, with the same result.
func TestReplaceText(t *testing.T) {
	c := newReplaced(shard.Layout{Shards: 1})
	replace := func(texts ...string) ingest.Replaced {
		t.Helper()
		from := &stateSource{}
		for _, text := range texts {
			from.records = append(from.records, ingest.Record{Document: []byte(text)})
		}
		done, err := c.replace(t.Context(), from, 1)
		require.NoError(t, err)
		return done
	}
	texts := []string{
		`{"id":"a","x":"_"}`, `{ "id" : 7 }`, `{"x":1,"id":"last"}`, `{"id":"esc\u0061ped"}`, `{"id":"temporary","_expires":"2030-01-01T00:00:00Z"}`,
		`{"id":"raw","_document":"x"}`, `{"id":"other","_id_base64":"QQ=="}`,
	}
	all := int64(len(texts))
	require.Equal(t, ingest.Replaced{Added: all}, replace(texts...))
	require.Equal(t, ingest.Replaced{Equal: all}, replace(texts...))
	texts[0], texts[1], texts[2] = `{"id":"a","x":""}`, `{"id":7}`, `{"id":"new"}`
	require.Equal(t, ingest.Replaced{Equal: all - 3, Changed: 2, Added: 1, Deleted: 1}, replace(texts...))
	state, _, err := c.stateOf()
	require.NoError(t, err)
	require.Equal(t, `{"id":7}`, state["7"])
	require.Equal(t, `"x"`, state["raw"])
	require.Equal(t, texts[6], state["A"])

	// Control fields count although the collection has the same bytes, stored as plain fields.
	same := `{"id":"a","_expires":"2030-01-01T00:00:00Z"}`
	c.put(t, queue.Record{ID: []byte("a"), Document: []byte(same)})
	texts[0] = same
	require.Equal(t, ingest.Replaced{Equal: all - 1, Changed: 1}, replace(texts...))
	_, err = c.replace(t.Context(), &stateSource{records: []ingest.Record{{Document: []byte(texts[1])}, {Document: []byte(texts[1])}}}, 1)
	require.ErrorContains(t, err, `the id "7" occurs twice`)
}

var errSource = errors.New("the source failed")

// After each error, the collection is as before, and the next state replaces it.
func TestReplaceRefuses(t *testing.T) {
	document := func(id string) ingest.Record { return ingest.Record{ID: []byte(id), Document: []byte("new")} }
	many := func(n int) (records []ingest.Record) {
		for i := range n {
			records = append(records, document(fmt.Sprint("added-", i)))
		}
		return records
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	for name, c := range map[string]struct {
		ctx   context.Context
		from  stateSource
		is    error
		wants string
	}{
		"empty": {wants: "the input has no documents; 20 of the 20 in the queue would be deleted (100 %), and at most 50 % may be"},
		"cut short": {
			from:  stateSource{records: []ingest.Record{document("1"), document("2"), document("new")}},
			wants: "the input has 3 documents; 18 of the 20 in the queue would be deleted (90 %), and at most 50 % may be",
		},
		"an id twice": {
			from: stateSource{records: append(many(40), document("3"), document("4"), document("3"))},
			is:   ingest.ErrInvalid, wants: `input:43: the id "3" occurs twice; a whole state has one document of each id`,
		},
		"a new id twice": {
			from: stateSource{records: append(many(40), document("added-5"), document("added-4"))},
			is:   ingest.ErrInvalid, wants: `input:41: the id "added-5" occurs twice`,
		},
		"a delete": {
			from: stateSource{records: append(many(3), ingest.Record{ID: []byte("1"), Delete: true})},
			is:   ingest.ErrInvalid, wants: `input:4: a delete of "1"; a whole state has documents only`,
		},
		"an invalid record": {
			from: stateSource{records: append(many(3), ingest.Record{Document: []byte("not JSON")})},
			is:   ingest.ErrInvalid, wants: "input:4: not JSON",
		},
		"a long id": {
			from: stateSource{records: append(many(3), document(strings.Repeat("x", queue.MaxIDBytes+1)))},
			is:   ingest.ErrInvalid, wants: "input:4: the id has 1025 bytes; 1 to 1024 are allowed",
		},
		"a source that fails": {from: stateSource{records: many(30), err: errSource}, is: errSource, wants: errSource.Error()},
		"an interruption":     {ctx: cancelled, from: stateSource{records: many(30)}, is: ingest.ErrInterrupted, wants: "interrupted"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, layout := range testLayouts {
				random := testseed.Rand(t)
				q := newReplaced(layout)
				before := state{}
				for i := range 20 {
					before[fmt.Sprint(i)] = "old"
				}
				_, err := q.replace(t.Context(), before.source(random), 0)
				require.NoError(t, err)
				_, entries, err := q.stateOf()
				require.NoError(t, err)
				ctx, from := c.ctx, c.from
				if ctx == nil {
					ctx = t.Context()
				}
				_, err = q.replace(ctx, &from, 0.5)
				require.ErrorContains(t, err, c.wants)
				if c.is != nil {
					require.ErrorIs(t, err, c.is)
				}
				has, now, err := q.stateOf()
				require.NoError(t, err)
				require.Equal(t, before, has)
				require.Equal(t, entries, now)
				q.requireFiles(t)
				done, err := q.replace(t.Context(), before.source(random), 0)
				require.NoError(t, err)
				require.Equal(t, ingest.Replaced{Equal: 20}, done)
			}
		})
	}
}

// A crash at any operation, and a failure of any, leave the old state or the new one in each shard,
// also for the next writer. The repetition makes the new state.
func TestReplaceAfterCrash(t *testing.T) {
	for _, layout := range testLayouts {
		t.Run(fmt.Sprint(layout.Shards), func(t *testing.T) {
			random, tally := testseed.Rand(t), crashtest.NewTally(t, "crashes and faults")
			c := newReplaced(layout)
			old, next := state{}, state{}
			for i := range 60 {
				old[fmt.Sprint(i)] = strings.Repeat("old", 10+i)
				next[fmt.Sprint(i+10)] = strings.Repeat([]string{"old", "new"}[i%2], 20+i)
			}
			_, err := c.replace(t.Context(), old.source(random), 1)
			require.NoError(t, err)
			disk := c.fs.(*vfs.Mem)
			share := crashtest.Share(map[int]int{1: 4, 8: 60}[layout.Shards], 1)
			check := func(at vfs.FS, describe string) {
				tally.Case()
				after := replaced{at, layout, c.now}
				w, err := shardset.Open(testDir, &shardset.Options{FS: at, Layout: layout})
				if !assert.NoError(t, err, describe) || !assert.NoError(t, w.Close()) {
					return
				}
				has, _, err := after.stateOf()
				assert.NoError(t, err)
				for i := range layout.Shards {
					of := func(s state) state {
						s = maps.Clone(s)
						maps.DeleteFunc(s, func(id, _ string) bool { return layout.Shard([]byte(id)) != i })
						return s
					}
					assert.Contains(t, []state{of(old), of(next)}, of(has), describe)
				}
				_, err = after.replace(context.Background(), next.source(rand.New(rand.NewPCG(1, 1))), 1)
				assert.NoError(t, err, describe)
				has, _, err = after.stateOf()
				assert.NoError(t, err)
				assert.Equal(t, next, has, describe)
				after.requireFiles(t)
			}
			before := disk.CrashClone(vfs.KeepAll)
			var one sync.Mutex
			fault := vfs.NewFault(disk, func(op vfs.Op) error {
				one.Lock()
				defer one.Unlock()
				if t.Failed() || random.IntN(share) > 0 {
					return nil
				}
				for _, way := range crashtest.Ways(random) {
					check(disk.CrashClone(way.Keep), fmt.Sprint(op, way.Name))
				}
				return nil
			})
			_, err = replaced{fault, layout, c.now}.replace(t.Context(), next.source(random), 1)
			require.NoError(t, err)
			for k := int64(1); k <= fault.Ops() && !t.Failed(); k += 1 + random.Int64N(int64(2*share)) {
				failing := before.CrashClone(vfs.KeepAll)
				_, err := replaced{vfs.NewFault(failing, func(op vfs.Op) error {
					if op.N == k {
						return vfs.ErrNoSpace
					}
					return nil
				}), layout, c.now}.replace(t.Context(), next.source(random), 1)
				check(failing, fmt.Sprintf("operation %d: %v", k, err))
			}
		})
	}
}
