package ingest_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

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

const testDir = "/srv/jobs"

// testLayouts are those of the sets that are written.
var testLayouts = []shard.Layout{{Shards: 1}, {Shards: 8, Seed: 5}}

// input is a source with numbered records. Its cursors are NAME:NUMBER, of the last record.
type input struct {
	name string
	ids  []string
}

// errOtherInput: a cursor belongs to another input, and another one to this.
var errOtherInput = errors.New("cursors of several inputs")

func (in *input) Position(cursor []byte) (ingest.Position, error) {
	name, number, _ := strings.Cut(string(cursor), ":")
	if name != in.name {
		return -1, nil // has no record of this input
	}
	n, err := strconv.Atoi(number)
	return n, err
}

// Earliest accepts cursors of another input if no shard has one of this input, which then has
// not begun.
func (in *input) Ends() bool { return true }

func (in *input) Earliest(cursors [][]byte) ([]byte, error) {
	earliest, others, own := len(in.ids), 0, false
	for _, cursor := range cursors {
		if len(cursor) == 0 {
			earliest = -1
			continue
		}
		p, err := in.Position(cursor)
		switch {
		case err != nil:
			return nil, err
		case p == -1:
			others++
		default:
			earliest, own = min(earliest, p.(int)), true
		}
	}
	switch {
	case others > 0 && own:
		return nil, errOtherInput
	case others > 0 || earliest < 0:
		return nil, nil
	}
	return in.cursor(earliest), nil
}

func (in *input) cursor(n int) []byte { return fmt.Appendf(nil, "%s:%d", in.name, n) }

func (in *input) Open(context.Context, []byte) (ingest.Source, error) { panic("not used") }

// batch returns up to size records behind a cursor.
func (in *input) batch(after, size int) *ingest.Batch {
	first := after + 1
	b := &ingest.Batch{
		AppendCursor: func(dst []byte, i int) []byte { return append(dst, in.cursor(first+i)...) },
		Included:     func(p ingest.Position, i int) bool { return p.(int) >= first+i },
	}
	for n := first; n < min(first+size, len(in.ids)); n++ {
		b.Records = append(b.Records, ingest.Record{ID: []byte(in.ids[n]), Document: in.cursor(n)})
	}
	return b
}

// newInput returns an input with phases in which most shards have no records.
func newInput(random *rand.Rand, l shard.Layout, name string, records int) *input {
	in := &input{name: name}
	for len(in.ids) < records {
		a, b := random.IntN(l.Shards), random.IntN(l.Shards)
		for phase := random.IntN(60); phase > 0; phase-- {
			for {
				id := strconv.Itoa(random.IntN(1 << 30))
				if s := l.ShardString(id); s == a || s == b {
					in.ids = append(in.ids, id)
					break
				}
			}
		}
	}
	return in
}

// start returns a function that reads the records behind a cursor.
func (in *input) start(_ *rand.Rand, from []byte) func(size int) *ingest.Batch {
	after := -1
	if len(from) > 0 {
		p, _ := in.Position(from) // Earliest has parsed it
		after = p.(int)
	}
	return func(size int) *ingest.Batch {
		b := in.batch(after, size)
		after += len(b.Records)
		return b
	}
}

// testInput is an input that can be read again.
type testInput interface {
	ingest.Opener
	start(random *rand.Rand, from []byte) func(size int) *ingest.Batch
}

// appendAll appends the input, or the rest of it, and returns after the first error.
func appendAll(random *rand.Rand, fsys vfs.FS, l shard.Layout, in testInput, resume bool, now func() time.Time) (err error) {
	w, err := shardset.Open(testDir, &shardset.Options{FS: fsys, Layout: l, Codec: "none", SegmentBytes: 2 << 10, Now: now})
	if err != nil {
		return err
	}
	defer func() {
		if closing := w.Close(); err == nil {
			err = closing
		}
	}()
	to, from := ingest.CatchUp{Writer: w}, []byte(nil)
	if resume {
		if from, err = to.Resume(in); err != nil {
			return err
		}
	}
	next, canaries := in.start(random, from), canary.IDs(l.Shards, l.Shard)
	for {
		b := next(1 + random.IntN(20))
		if len(b.Records) == 0 {
			return to.End()
		}
		for i, r := range b.Records {
			if random.IntN(20) == 0 {
				if err := to.Put(queue.Record{ID: canaries[random.IntN(l.Shards)], Document: []byte("{}")}); err != nil {
					return err
				}
			}
			has, err := to.Has(b, i)
			if err != nil {
				return err
			}
			if has {
				continue
			}
			if err := to.Put(queue.Record{ID: r.ID, Document: r.Document, Cursor: b.AppendCursor(nil, i)}); err != nil {
				return err
			}
			switch random.IntN(300) {
			case 0:
				err = w.Seal()
			case 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20:
				err = w.Flush()
			}
			if err != nil {
				return err
			}
		}
	}
}

// entries returns the documents of all shards, except canaries, in the order of each shard.
func entries(t require.TestingT, fsys vfs.FS, dir string, l shard.Layout) (documents []string) {
	for i := range l.Shards {
		r, err := queue.OpenReader(l.Dir(dir, i), &queue.ReaderOptions{FS: fsys})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(context.Background())
		if r.End().IsZero() {
			cancel()
		}
		err = r.Tail(ctx, queue.Position{}, func(e queue.Entry) error {
			require.Equal(t, i, l.Shard(e.ID), "document in the wrong shard")
			var document []byte
			if !e.Deleted {
				document, err = r.DocumentFor(nil, e.ID, e.Address)
				require.NoError(t, err)
			}
			if !canary.Is(e.ID) {
				documents = append(documents, string(document))
			}
			if e.Next.Next.Compare(r.End().Next) >= 0 {
				return io.EOF
			}
			return nil
		})
		cancel()
		require.True(t, errors.Is(err, io.EOF) || errors.Is(err, context.Canceled), "%v", err)
		require.NoError(t, r.Close())
	}
	return documents
}

var errCrash = errors.New("crash")

// TestExactlyOnce appends inputs one after the other, and canaries between their records. The
// program crashes again and again, also while it resumes. In the end the shards have each record once, in its order.
func TestExactlyOnce(t *testing.T) {
	testExactlyOnce(t, false, func(random *rand.Rand, l shard.Layout, n int) (testInput, []string) {
		in := newInput(random, l, fmt.Sprint("input", n), 300)
		var documents []string
		for i := range in.ids {
			documents = append(documents, string(in.cursor(i)))
		}
		return in, documents
	})
}

// testExactlyOnce appends what newInput returns. same: these are the records of one input that grows.
func testExactlyOnce(t *testing.T, same bool, newInput func(random *rand.Rand, l shard.Layout, n int) (in testInput, documents []string)) {
	for _, layout := range testLayouts {
		t.Run(fmt.Sprintf("shards=%d", layout.Shards), func(t *testing.T) {
			testExactlyOnceIn(t, layout, same, newInput)
		})
	}
}

func testExactlyOnceIn(t *testing.T, layout shard.Layout, same bool, newInput func(*rand.Rand, shard.Layout, int) (testInput, []string)) {
	random := testseed.Rand(t)
	tally := crashtest.NewTally(t, "crashes")
	for range crashtest.Share(6, 200) {
		disk := vfs.NewMem()
		require.NoError(t, disk.MkdirAll("/srv"))
		require.NoError(t, disk.SyncDir("/"))
		var clock atomic.Int64
		want := map[string]int{}
		for n := range 3 {
			in, documents := newInput(random, layout, n)
			for _, document := range documents {
				want[document]++
			}
			for resume := same; ; resume = true {
				crashAfter, ways := random.IntN(1<<(2+random.IntN(10))), crashtest.Ways(random)
				way := ways[random.IntN(len(ways))]
				var mu sync.Mutex
				var after *vfs.Mem
				faulty := vfs.NewFault(disk, func(vfs.Op) error {
					mu.Lock()
					defer mu.Unlock()
					if crashAfter--; crashAfter > 0 {
						return nil
					}
					if after == nil {
						after = disk.CrashClone(way.Keep)
						tally.Case()
					}
					return errCrash
				})
				step := int64(random.IntN(100) * 1_000_000 << random.IntN(8))
				err := appendAll(random, faulty, layout, in, resume, func() time.Time { return time.Unix(0, clock.Add(step)) })
				if after == nil {
					require.NoError(t, err)
					break
				}
				disk = after
			}
		}
		for _, document := range entries(t, disk, testDir, layout) {
			want[document]--
		}
		for document, n := range want {
			require.Zero(t, n, "times that %s is missing", document)
		}
	}
}
