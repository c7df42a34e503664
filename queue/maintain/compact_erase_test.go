package maintain_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"docstore/internal/crashtest"
	"docstore/internal/race"
	"docstore/internal/testseed"
	"docstore/internal/vfs"
	"docstore/queue"
	"docstore/queue/codec"
	"docstore/queue/internal/queuetest"
	"docstore/queue/internal/segment"
	"docstore/queue/maintain"

	"github.com/stretchr/testify/require"
)

// filesWith returns the names of the files that contain the bytes.
func filesWith(t testing.TB, fsys vfs.FS, content string) (names []string) {
	t.Helper()
	all, err := fsys.List(queuetest.Dir)
	require.NoError(t, err)
	for _, name := range all {
		b, err := vfs.ReadFile(fsys, queuetest.Dir+"/"+name)
		require.NoError(t, err)
		if bytes.Contains(b, []byte(content)) {
			names = append(names, name)
		}
	}
	return names
}

func erase(t testing.TB, fsys vfs.FS, now time.Time, after time.Duration) maintain.CompactReport {
	t.Helper()
	report, err := maintain.Compact(context.Background(), queuetest.Dir, &maintain.CompactOptions{
		FS: fsys, EraseDead: true, EraseAfter: after, DeleteOriginals: true, MaxDead: 1,
		Now: func() time.Time { return now }, DictionaryBytes: eraseDictionaryBytes,
	})
	require.NoError(t, err)
	return report
}

const eraseDictionaryBytes = 256

// secretDocument returns a document with a unique secret in it.
func secretDocument(random *rand.Rand) (document, secret string) {
	secret = fmt.Sprintf("%016x%016x", random.Uint64(), random.Uint64())
	return queuetest.Posting(random.IntN(1000))[:200] + secret, secret
}

// TestEraseModel writes, overwrites, deletes and expires documents with unique content,
// compacts sometimes, and erases: content that has been dead for long enough is in no
// file, and live documents are served.
func TestEraseModel(t *testing.T) {
	for _, codec := range codec.Names() {
		t.Run(codec, func(t *testing.T) {
			random := testseed.Rand(t)
			mem := queuetest.NewMem(t)
			now := queuetest.Start
			opts := queuetest.Options(mem)
			opts.Codec, opts.BlockBytes, opts.SegmentBytes, opts.DictionaryBytes = codec, 2000, 20_000, eraseDictionaryBytes
			var clock atomic.Int64 // now, for the goroutines of the writer
			advance := func(d time.Duration) {
				now = now.Add(d).Truncate(time.Millisecond)
				clock.Store(now.UnixMilli())
			}
			advance(0)
			opts.Now = func() time.Time { return time.UnixMilli(clock.Load()) }
			type version struct {
				queuetest.Item
				secret string
			}
			newest := map[string]version{}
			died := map[string]time.Time{} // by secret
			inDictionary := 0
			written := map[queue.Address]version{}
			places := map[queue.Address]queue.Place{} // the last ones seen, of erased documents too
			seen := seenPlaces{}
			for range crashtest.Share(36, 360) {
				w := queuetest.OpenWriter(t, opts)
				var replaced []string // secrets
				for range 20 + random.IntN(100) {
					v := version{Item: queuetest.Item{ID: fmt.Sprint("id", random.IntN(60))}}
					if random.IntN(6) == 0 {
						v.Deleted = true
					} else {
						v.Document, v.secret = secretDocument(random)
					}
					if random.IntN(10) == 0 && !v.Deleted {
						v.Expires = now.Truncate(time.Second).Add(time.Duration(random.IntN(20)) * time.Second)
					}
					before := newest[v.ID]
					if _, dead := died[before.secret]; before.secret != "" && !dead {
						replaced = append(replaced, before.secret)
					}
					v.Put(t, w)
					newest[v.ID] = v
					if !v.Deleted {
						written[v.At] = v
					}
					advance(10 * time.Millisecond)
				}
				require.NoError(t, w.Close())
				for _, secret := range replaced { // at the time of a block, which is now at the latest
					died[secret] = now
				}
				maps.Copy(places, queuetest.PlacesOf(t, queuetest.OpenReader(t, mem)))
				advance(time.Second)
				for _, v := range newest {
					if _, dead := died[v.secret]; !dead && !v.Expires.IsZero() && !now.Before(v.Expires) {
						died[v.secret] = v.Expires
					}
				}
				if random.IntN(2) == 0 {
					_, err := maintain.Compact(context.Background(), queuetest.Dir, &maintain.CompactOptions{
						FS: mem, MaxDead: 0.01 + random.Float64(), DeleteOriginals: random.IntN(2) == 0, Now: func() time.Time { return now },
					})
					require.NoError(t, err)
				}
				for secret := range died {
					for _, name := range filesWith(t, mem, secret) {
						n, _ := queue.ParseFileName(name)
						s, err := segment.Open(mem, queuetest.Dir+"/"+name, n.First)
						require.NoError(t, err)
						content, err := s.Dictionary()
						require.NoError(t, err)
						if bytes.Contains(content, []byte(secret)) {
							inDictionary++
						}
						s.Close()
					}
				}
				after := time.Duration(random.IntN(3)) * time.Second
				require.Empty(t, erase(t, mem, now, after).NotErased)
				for secret, at := range died {
					if !at.After(now.Add(-after)) {
						require.Empty(t, filesWith(t, mem, secret), "dead since %v, now %v", at, now)
					}
				}
				for again := 0; erase(t, mem, now, after).Rewrites > 0; again++ {
					require.Less(t, again, 3, "small rewrites are merged, and then there is nothing left to do")
				}
				queuetest.RequireSound(t, mem)
				r := queuetest.OpenReader(t, mem)
				for at, v := range written { // an index may be behind
					if dead, ok := died[v.secret]; ok && !dead.After(now.Add(-after)) {
						_, _, err := r.StoredFor(nil, queue.Wanted{ID: []byte(v.ID), Address: at, Place: places[at]}, 0)
						require.Error(t, err, "%s at %s is served by its place", v.ID, at)
					}
				}
				maps.Copy(places, queuetest.PlacesOf(t, r))
				requireAllPlaces(t, r, seen)
				index := (&queuetest.Follower{Index: map[string]queuetest.Indexed{}}).Follow(t, r, -1)
				for id, v := range newest {
					if v.Deleted || !v.Expires.IsZero() && !now.Before(v.Expires) {
						continue
					}
					document, err := r.DocumentFor(nil, []byte(id), index.Index[id].Address)
					require.NoError(t, err)
					require.Equal(t, v.Document, string(document))
				}
				require.NoError(t, r.Close())
			}
			if codec == "s2" {
				require.Positive(t, inDictionary, "no erased document was in a dictionary, so the test is void")
			}
		})
	}
}

// seenPlaces are the places of each document, with the dictionary of the file.
type seenPlaces map[queue.Address]map[queue.Place]codec.DictionaryHash

// requireAllPlaces requires that every document is found with each of its places in earlier
// files, which it adds to. Places number the files of a segment from 1 to 7 in turns: it
// returns how many places have the number of the present file, but are of one with another
// dictionary.
func requireAllPlaces(t *testing.T, r *queue.Reader, seen seenPlaces) (ambiguous int) {
	t.Helper()
	infos, err := r.Segments()
	require.NoError(t, err)
	present := queuetest.PlacesOf(t, r)
	for at, p := range present {
		i := slices.IndexFunc(infos, func(i queue.SegmentInfo) bool { return i.ID <= at.Segment && at.Segment <= i.Last })
		require.GreaterOrEqual(t, i, 0)
		if seen[at] == nil {
			seen[at] = map[queue.Place]codec.DictionaryHash{}
		}
		seen[at][p] = infos[i].Dictionary
	}
	require.NoError(t, r.Scan(context.Background(), queue.Position{}, func(e queue.Entry) error {
		want, wantErr := r.DocumentFor(nil, e.ID, e.Address)
		now := present[e.Address]
		for p, dictionary := range seen[e.Address] {
			got, _, err := r.StoredFor(nil, queue.Wanted{ID: e.ID, Address: e.Address, Place: p}, 0)
			if fileNumber(p) == fileNumber(now) && dictionary != seen[e.Address][now] {
				ambiguous++
			}
			if errors.Is(err, queue.ErrOtherPlace) { // of the document as it was encoded before
				require.NotEqual(t, now, p)
				continue
			}
			require.Equal(t, wantErr == nil, err == nil, "%v", err)
			require.Equal(t, string(want), string(got))
		}
		return nil
	}))
	return ambiguous
}

func fileNumber(p queue.Place) uint64 { return binary.LittleEndian.Uint64(p[4:]) >> 51 & 7 }

// TestPlacesOfRewritesWithTheSameNumber: the eighth rewrite has the number of the first one, and
// another dictionary. The places of both give the right documents, or none.
func TestPlacesOfRewritesWithTheSameNumber(t *testing.T) {
	const rewrites, dictionaryBytes = 2*7 + 1, 2 << 10
	for _, name := range []string{"s2", "zstd"} {
		t.Run(name, func(t *testing.T) {
			if name == "zstd" && race.Enabled {
				t.Skip("training for zstd takes minutes under the race detector")
			}
			mem := queuetest.NewMem(t)
			opts := queuetest.Options(mem)
			opts.Codec, opts.BlockBytes, opts.SegmentBytes, opts.DictionaryBytes = name, 2000, 1<<20, dictionaryBytes
			w := queuetest.OpenWriter(t, opts)
			for i := range 500 {
				(&queuetest.Item{ID: fmt.Sprint(i), Document: queuetest.Posting(i)}).Put(t, w)
			}
			require.NoError(t, w.Close())
			seen, ambiguous := seenPlaces{}, 0
			for i := range rewrites {
				w := queuetest.OpenWriter(t, opts)
				for _, n := range []int{i, 499 - i} { // of the sample of the first dictionary, and of later ones
					(&queuetest.Item{ID: fmt.Sprint(n), Deleted: true}).Put(t, w)
				}
				require.NoError(t, w.Close())
				_, err := maintain.Compact(context.Background(), queuetest.Dir, &maintain.CompactOptions{
					FS: mem, EraseDead: true, DeleteOriginals: true, MaxDead: 1, DictionaryBytes: dictionaryBytes,
					Now: func() time.Time { return queuetest.Start.Add(time.Hour) },
				})
				require.NoError(t, err)
				ambiguous += requireAllPlaces(t, queuetest.OpenReader(t, mem), seen)
			}
			require.Greater(t, ambiguous, 300, "else the test is void")
		})
	}
}

// TestEraseNewestSegment: a queue of one segment continues after its rewrite, with its
// cursor, even if only the last delete is left.
func TestEraseNewestSegment(t *testing.T) {
	mem := queuetest.NewMem(t)
	w := queuetest.OpenWriter(t, queuetest.Options(mem))
	(&queuetest.Item{ID: "id", Document: "the secret"}).Put(t, w)
	w.SetCursor([]byte("line 1"))
	require.NoError(t, w.Flush())
	(&queuetest.Item{ID: "id", Deleted: true}).Put(t, w)
	w.SetCursor([]byte("line 2"))
	require.NoError(t, w.Flush())
	require.Equal(t, []queue.SegmentID{1}, erase(t, mem, queuetest.Start.Add(time.Hour), 0).NotErased, "it is being written")
	require.NoError(t, w.Close())
	r := queuetest.OpenReader(t, mem)
	end := r.End()

	require.Zero(t, erase(t, mem, queuetest.Start.Add(time.Hour), 2*time.Hour).Rewrites, "not so soon")
	require.Equal(t, 1, erase(t, mem, queuetest.Start.Add(time.Hour), time.Minute).Rewrites)
	require.Empty(t, filesWith(t, mem, "secret"))
	require.Equal(t, end, r.End())
	require.Len(t, queuetest.Scan(t, r, queue.Position{}), 1)
	w = queuetest.OpenWriter(t, queuetest.Options(mem))
	require.Equal(t, "line 2", string(w.Cursor()))
	it := queuetest.Item{ID: "id", Document: "another"}
	it.Put(t, w)
	require.NoError(t, w.Close())
	require.EqualValues(t, 2, it.At.Segment)
	got := queuetest.Scan(t, r, end)
	require.Len(t, got, 1)
	require.Equal(t, it.At, got[0].At)
	queuetest.RequireSound(t, mem)
}

// TestEraseAtAnyGeneration: a rewrite with the last name of four digits is rewritten like any
// other. If the generation cannot be stored, the erasure fails.
func TestEraseAtAnyGeneration(t *testing.T) {
	for _, test := range []struct {
		generation uint32
		name       string // of the next rewrite; empty: there is none
	}{
		{9999, "0000000001-0000000001.10000.seg"},
		{segment.MaxGeneration - 1, "0000000001-0000000001.4294967295.seg"},
		{segment.MaxGeneration, ""},
	} {
		t.Run(fmt.Sprint(test.generation), func(t *testing.T) {
			mem := queuetest.NewMem(t)
			w := queuetest.OpenWriter(t, queuetest.Options(mem))
			secret := queuetest.Item{ID: "id", Document: "the secret"}
			for _, it := range []queuetest.Item{{ID: "id", Document: "first"}, secret, {ID: "other", Document: "a document"}} {
				it.Put(t, w)
				require.NoError(t, w.Flush())
			}
			require.NoError(t, w.Seal())
			require.Equal(t, 1, erase(t, mem, queuetest.Start.Add(time.Hour), 0).Rewrites)
			setGeneration(t, mem, segment.Run{First: 1, Last: 1, Generation: 1}, test.generation)
			(&queuetest.Item{ID: "id", Deleted: true}).Put(t, w)
			require.NoError(t, w.Close())

			now := queuetest.Start.Add(2 * time.Hour)
			_, err := maintain.Compact(context.Background(), queuetest.Dir, &maintain.CompactOptions{
				FS: mem, EraseDead: true, DeleteOriginals: true, MaxDead: 1, Now: func() time.Time { return now },
			})
			if test.name == "" {
				require.ErrorContains(t, err, "segments 1 to 1 have the highest possible generation, 4294967295")
				_, err = maintain.Truncate(context.Background(), queuetest.Dir, queue.Address{Segment: 1}, &maintain.TruncateOptions{FS: mem})
				require.ErrorContains(t, err, "highest possible generation")
				return
			}
			require.NoError(t, err)
			require.Empty(t, filesWith(t, mem, secret.Document))
			require.Equal(t, []string{test.name}, filesWith(t, mem, "a document"))
			require.Len(t, queuetest.Scan(t, queuetest.OpenReader(t, mem), queue.Position{}), 2)
			queuetest.RequireSound(t, mem)
		})
	}
}

// setGeneration gives the file of a rewrite another generation.
func setGeneration(t *testing.T, fsys vfs.FS, run segment.Run, generation uint32) {
	t.Helper()
	content, err := vfs.ReadFile(fsys, run.Path(queuetest.Dir))
	require.NoError(t, err)
	segment.Little.PutUint32(content[88:], generation)
	require.NoError(t, fsys.Remove(run.Path(queuetest.Dir)))
	run.Generation = generation
	require.NoError(t, vfs.WriteFileAtomic(fsys, run.Path(queuetest.Dir), queuetest.FixChecksums(content)))
}

// TestEraseAfterRepair: the damaged file that repair has renamed is removed, too.
func TestEraseAfterRepair(t *testing.T) {
	mem := queuetest.NewMem(t)
	w := queuetest.OpenWriter(t, queuetest.Options(mem))
	(&queuetest.Item{ID: "id", Document: "the secret"}).Put(t, w)
	(&queuetest.Item{ID: "other", Document: "a document"}).Put(t, w)
	require.NoError(t, w.Seal())
	(&queuetest.Item{ID: "id", Deleted: true}).Put(t, w)
	require.NoError(t, w.Close())
	name := segment.Path(queuetest.Dir, 1, segment.SealedSuffix)
	content, err := vfs.ReadFile(mem, name)
	require.NoError(t, err)
	content[bytes.Index(content, []byte("a document"))] ^= 1
	require.NoError(t, mem.Remove(name))
	require.NoError(t, vfs.WriteFileAtomic(mem, name, content))
	repairQueue(t, mem)
	require.Len(t, filesWith(t, mem, "secret"), 2)
	erase(t, mem, queuetest.Start.Add(time.Hour), 0)
	require.Empty(t, filesWith(t, mem, "secret"))
}
