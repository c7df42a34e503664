package queue_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"

	"docstore/internal/checksum"
	"docstore/internal/vfs"
	"docstore/queue"
	"docstore/queue/codec"
	"docstore/queue/internal/queuetest"
	"docstore/queue/internal/segment"
	"docstore/queue/maintain"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestEveryByteDamaged damages each byte of each file: the answer is right or an error,
// and a check finds the damage. Bytes covered by a checksum behave alike for every codec,
// so other codecs run fewer cases.
func TestEveryByteDamaged(t *testing.T) {
	for _, codec := range codec.Names() {
		for _, seal := range []bool{true, false} {
			files, items := queuetest.SmallQueue(t, codec, seal)
			for name, content := range files {
				if !seal && name == "0000000001.seg" || codec != "none" && name != "0000000001.seg" {
					continue // the same as in another case
				}
				for i, damage := range queuetest.Damages {
					if codec != "none" && i > 0 {
						continue
					}
					t.Run(fmt.Sprintf("codec=%s/%s/%s", codec, name, damage.Name), func(t *testing.T) {
						t.Parallel()
						for at := range content {
							damaged := damage.Do(bytes.Clone(content), at)
							if !bytes.Equal(damaged, content) {
								requireHonest(t, files, items, name, damaged, at)
							}
						}
					})
				}
			}
		}
	}
}

// requireHonest reads a queue with a damaged file in every way. Answers must be right or
// errors.
func requireHonest(t *testing.T, files map[string][]byte, items []queuetest.Item, name string, damaged []byte, at int) {
	mem := queuetest.NewMem(t)
	for other, content := range files {
		if other == name {
			content = damaged
		}
		f, err := mem.Create(queuetest.Dir + "/" + other)
		require.NoError(t, err)
		_, err = f.Write(content)
		require.NoError(t, err)
		require.NoError(t, f.Close())
	}
	r, err := queue.OpenReader(queuetest.Dir, &queue.ReaderOptions{FS: mem})
	require.NoError(t, err)
	defer r.Close()

	lost := 0
	for _, it := range items {
		got, err := r.DocumentFor(nil, []byte(it.ID), it.At)
		switch {
		case errors.Is(err, queue.ErrUnavailable):
			lost++
		case it.Deleted:
			require.Same(t, queue.ErrDeleted, err, "byte %d", at)
		case err != nil || string(got) != it.Document:
			require.FailNow(t, "wrong document", "byte %d: %v, %q, want %q", at, err, got, it.Document)
		}
	}
	entries, scanErr := queuetest.TryScan(r, queue.Position{})
	require.LessOrEqual(t, len(entries), len(items), "byte %d", at)
	for i, e := range entries {
		if items[i].ID != e.ID || items[i].At != e.At {
			require.FailNow(t, "wrong entry", "byte %d: %v, want %v", at, e, items[i])
		}
	}
	report, err := maintain.Check(context.Background(), queuetest.Dir, &maintain.CheckOptions{FS: mem})
	require.NoError(t, err, "byte %d", at)
	number, suffix, _ := segment.ParseName(name)
	if suffix == segment.SealedSuffix {
		require.NotEmpty(t, report.Damage, "byte %d", at)
		for _, d := range report.Damage {
			require.LessOrEqual(t, d.Offset, int64(len(files[name])))
			require.Contains(t, []queue.SegmentID{number, number + 1}, d.Segment)
		}
		if len(entries) < len(items) {
			require.Error(t, scanErr, "byte %d", at)
		}
	} else if lost > 0 && len(damaged) == len(files[name]) { // a shorter one is whole at some lengths
		require.NotZero(t, len(report.Damage)+int(report.Unfinished), "byte %d", at)
	}
	_, err = r.Segments()
	require.NoError(t, err)
	r.End()
	if w, err := queue.OpenWriter(queuetest.Dir, queuetest.Options(mem)); err == nil {
		require.NoError(t, w.Close())
	}
}

// TestReaderUsesReplacedFile: a reader finds the good copy of a damaged file without a
// restart.
func TestReaderUsesReplacedFile(t *testing.T) {
	for _, codec := range codec.Names() {
		files, items := queuetest.SmallQueue(t, codec, true)
		damaged := bytes.Clone(files["0000000001.seg"])
		h, err := segment.ParseHeader(damaged[:segment.HeaderBytes])
		require.NoError(t, err)
		end := len(damaged) - segment.FooterBytes
		for i := int(h.FirstFrame()) + 4; i < end; i += 3 {
			damaged[i] ^= 1
		}
		mem := queuetest.MemWith(t, map[string][]byte{"0000000001.seg": damaged, "0000000002.seg": files["0000000002.seg"]})
		r := queuetest.OpenReader(t, mem)
		_, err = r.Document(nil, items[0].At)
		require.ErrorIs(t, err, queue.ErrUnavailable)
		require.ErrorIs(t, err, queue.ErrCorrupt)
		_, err = queuetest.TryScan(r, queue.Position{})
		var corruption *queue.CorruptionError
		require.ErrorAs(t, err, &corruption)
		assert.Equal(t, "/queue/0000000001.seg", corruption.Path)

		require.NoError(t, vfs.WriteFileAtomic(mem, queuetest.Dir+"/0000000001.seg", files["0000000001.seg"]))
		queuetest.RequireItems(t, r, items)

		// The reverse: the good file is cached when a damaged one replaces it.
		require.NoError(t, vfs.WriteFileAtomic(mem, queuetest.Dir+"/0000000001.seg", damaged))
		queuetest.RequireDocuments(t, r, items)
	}
}

// TestOpenFileReadIfSealedIsPartial: the sealed file is only half copied, and the open
// one has more.
func TestOpenFileReadIfSealedIsPartial(t *testing.T) {
	files, items := queuetest.SmallQueue(t, "none", true)
	whole := files["0000000001.seg"]
	for cut := 0; cut < len(whole); cut += 7 {
		mem := queuetest.MemWith(t, map[string][]byte{
			"0000000001.seg":  whole[:cut],
			"0000000001.open": whole,
			"0000000002.seg":  files["0000000002.seg"],
		})
		queuetest.RequireItems(t, queuetest.OpenReader(t, mem), items)
	}
}

func TestForeignAndForkedSegments(t *testing.T) {
	files, items := queuetest.SmallQueue(t, "none", true)
	mem := queuetest.NewMem(t)
	opts := queuetest.Options(mem)
	w := queuetest.OpenWriter(t, opts)
	for range 2 {
		_, err := w.Append([]byte("id"), []byte("foreign"))
		require.NoError(t, err)
		require.NoError(t, w.Seal())
	}
	var foreign [2][]byte
	for i := range foreign {
		var err error
		foreign[i], err = vfs.ReadFile(mem, segment.Path(queuetest.Dir, queue.SegmentID(i+1), segment.SealedSuffix))
		require.NoError(t, err)
	}

	t.Run("position", func(t *testing.T) {
		r := queuetest.OpenReader(t, queuetest.MemWith(t, map[string][]byte{"0000000001.seg": foreign[0]}))
		_, err := queuetest.TryScan(r, queue.Position{Queue: [16]byte{1}})
		require.ErrorIs(t, err, queue.ErrForked)
	})
	t.Run("next segment", func(t *testing.T) {
		mem := queuetest.MemWith(t, map[string][]byte{
			"0000000001.seg": files["0000000001.seg"], "0000000002.seg": foreign[1],
		})
		got, err := queuetest.TryScan(queuetest.OpenReader(t, mem), queue.Position{})
		require.ErrorIs(t, err, queue.ErrForked)
		require.Len(t, got, 5)
		report, err := maintain.CheckFile(context.Background(), mem, queuetest.Dir, "0000000002.seg")
		require.NoError(t, err)
		require.Empty(t, report.Damage)
	})
	t.Run("same queue other history", func(t *testing.T) {
		other := queuetest.NewSource(t)
		w := queuetest.OpenWriter(t, queuetest.Options(other))
		_, err := w.Append([]byte("id"), []byte("other"))
		require.NoError(t, err)
		require.NoError(t, w.Close())
		content, err := vfs.ReadFile(other, segment.Path(queuetest.Dir, 1, segment.SealedSuffix))
		require.NoError(t, err)
		mem := queuetest.MemWith(t, map[string][]byte{"0000000001.seg": content, "0000000002.seg": files["0000000002.seg"]})
		_, err = queuetest.TryScan(queuetest.OpenReader(t, mem), queue.Position{})
		require.ErrorIs(t, err, queue.ErrForked)
		report, err := maintain.Check(context.Background(), queuetest.Dir, &maintain.CheckOptions{FS: mem})
		require.NoError(t, err)
		require.Len(t, report.Damage, 1)
		assert.Contains(t, report.Damage[0].Reason, "the digest of segment 1 is")

		_, err = queuetest.OpenReader(t, mem).DocumentFor(nil, []byte(items[0].ID), items[0].At)
		require.ErrorIs(t, err, queue.ErrUnavailable, "another history's document at the address")
	})
	t.Run("wrong name", func(t *testing.T) {
		r := queuetest.OpenReader(t, queuetest.MemWith(t, map[string][]byte{"0000000001.seg": files["0000000002.seg"]}))
		_, err := queuetest.TryScan(r, queue.Position{})
		require.ErrorIs(t, err, queue.ErrCorrupt)
		require.ErrorContains(t, err, "header names segment 2")
		_, err = r.Document(nil, queue.Address{Segment: 1, Block: items[7].At.Block, Index: items[7].At.Index})
		require.ErrorIs(t, err, queue.ErrUnavailable)
	})
	t.Run("diverged", func(t *testing.T) {
		r := queuetest.OpenReader(t, queuetest.MemWith(t, files))
		for _, next := range []queue.Address{
			{Segment: 1, Block: uint32(len(files["0000000001.seg"])), Index: 0},
			{Segment: 1, Block: 5, Index: 0},
			{Segment: 1, Block: segment.HeaderBytes, Index: 60},
		} {
			_, err := queuetest.TryScan(r, queue.Position{Queue: queuetest.ID, Next: next})
			require.ErrorIs(t, err, queue.ErrDiverged, "%v", next)
		}
	})
}

func TestNewerVersion(t *testing.T) {
	files, items := queuetest.SmallQueue(t, "none", true)
	newer := bytes.Clone(files["0000000001.seg"])
	newer[12] = 1
	segment.Little.PutUint32(newer[8:], checksum.Of(newer[12:segment.HeaderBytes]))
	mem := queuetest.MemWith(t, map[string][]byte{"0000000001.seg": newer})
	r := queuetest.OpenReader(t, mem)
	_, err := queuetest.TryScan(r, queue.Position{})
	require.ErrorIs(t, err, queue.ErrNewerVersion)
	require.NotErrorIs(t, err, queue.ErrCorrupt)
	_, err = r.Document(nil, items[0].At)
	require.ErrorIs(t, err, queue.ErrNewerVersion)
	require.ErrorIs(t, err, queue.ErrUnavailable)
	_, err = queue.OpenWriter(queuetest.Dir, queuetest.Options(mem))
	require.ErrorIs(t, err, queue.ErrNewerVersion)
}
