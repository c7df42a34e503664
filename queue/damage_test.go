package queue_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"docstore/internal/vfs"
	"docstore/queue"
	"docstore/queue/codec"
	"docstore/queue/internal/dictionary"
	"docstore/queue/internal/segment"
	"docstore/queue/maintain"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// smallQueue writes two small segments: one with a dictionary if the codec takes one, a
// cursor, expiries and a delete; and one after it, which is left open if seal is false.
// It returns the files by name.
func smallQueue(t testing.TB, codec string, seal bool) (map[string][]byte, []item) {
	mem := newMem(t)
	opts := testOptions(mem)
	opts.Codec, opts.BlockBytes, opts.DictionaryBytes = codec, 400, -1
	opts.SegmentAge = time.Hour // makes each append read and advance the clock
	w := openWriter(t, opts)
	if w.Trainer().Codec.Train != nil {
		var documents [][]byte
		for i := range 64 {
			documents = append(documents, []byte(posting(1000+i)))
		}
		content, err := w.Trainer().Codec.Train(documents, 256)
		require.NoError(t, err)
		d, err := dictionary.New(w.Trainer().Codec, content)
		require.NoError(t, err)
		d.Sampled = segment.Run{First: 1, Last: 1}
		w.Trainer().Use(d)
		w.SetLastRaw(1 << 20)
	}
	var items []item
	for i := range 8 {
		it := item{id: fmt.Sprint("id-", i%5), document: posting(i)[:120] + posting(i)[40:120]}
		switch i {
		case 2:
			it.document, it.deleted = "", true
		case 3:
			it.expires = testStart.AddDate(1, 0, 0)
		case 4:
			it.document = ""
		}
		it.put(t, w)
		w.SetCursor([]byte(fmt.Sprint("cursor-", i)))
		items = append(items, it)
		switch i {
		case 1, 2:
			require.NoError(t, w.Flush())
		case 4:
			require.NoError(t, w.Seal())
		}
	}
	require.NoError(t, w.Flush())
	if seal {
		require.NoError(t, w.Close())
	}
	files := map[string][]byte{}
	names, err := mem.List(queueDir)
	require.NoError(t, err)
	for _, name := range names {
		if name == segment.LockName || name == queue.HeadName {
			continue
		}
		files[name], err = vfs.ReadFile(mem, queueDir+"/"+name)
		require.NoError(t, err)
	}
	require.Len(t, files, 2)
	return files, items
}

// damages are the ways of damaging a byte.
var damages = []struct {
	name string
	do   func(content []byte, at int) []byte
}{
	{"flipped", func(content []byte, at int) []byte { content[at] ^= 1 << (at % 8); return content }},
	{"inverted", func(content []byte, at int) []byte { content[at] ^= 0xff; return content }},
	{"zeroed", func(content []byte, at int) []byte { content[at] = 0; return content }},
	{"cut", func(content []byte, at int) []byte { return content[:at] }},
	{"zeroed to the end", func(content []byte, at int) []byte { clear(content[at:]); return content }},
}

// TestEveryByteDamaged damages each byte of each file: the answer is right or an error,
// and a check finds the damage. Bytes covered by a checksum behave alike for every codec,
// so other codecs run fewer cases.
func TestEveryByteDamaged(t *testing.T) {
	for _, codec := range codec.Names() {
		for _, seal := range []bool{true, false} {
			files, items := smallQueue(t, codec, seal)
			for name, content := range files {
				if !seal && name == "0000000001.seg" || codec != "none" && name != "0000000001.seg" {
					continue // the same as in another case
				}
				for i, damage := range damages {
					if codec != "none" && i > 0 {
						continue
					}
					t.Run(fmt.Sprintf("codec=%s/%s/%s", codec, name, damage.name), func(t *testing.T) {
						t.Parallel()
						for at := range content {
							damaged := damage.do(bytes.Clone(content), at)
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
func requireHonest(t *testing.T, files map[string][]byte, items []item, name string, damaged []byte, at int) {
	mem := newMem(t)
	for other, content := range files {
		if other == name {
			content = damaged
		}
		f, err := mem.Create(queueDir + "/" + other)
		require.NoError(t, err)
		_, err = f.Write(content)
		require.NoError(t, err)
		require.NoError(t, f.Close())
	}
	r, err := queue.OpenReader(queueDir, &queue.ReaderOptions{FS: mem})
	require.NoError(t, err)
	defer r.Close()

	lost := 0
	for _, it := range items {
		got, err := r.DocumentFor(nil, []byte(it.id), it.at)
		switch {
		case errors.Is(err, queue.ErrUnavailable):
			lost++
		case it.deleted:
			require.Same(t, queue.ErrDeleted, err, "byte %d", at)
		case err != nil || string(got) != it.document:
			require.FailNow(t, "wrong document", "byte %d: %v, %q, want %q", at, err, got, it.document)
		}
	}
	entries, scanErr := tryScan(r, queue.Position{})
	require.LessOrEqual(t, len(entries), len(items), "byte %d", at)
	for i, e := range entries {
		if items[i].id != e.id || items[i].at != e.at {
			require.FailNow(t, "wrong entry", "byte %d: %v, want %v", at, e, items[i])
		}
	}
	report, err := maintain.Check(context.Background(), queueDir, &maintain.CheckOptions{FS: mem})
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
	if w, err := queue.OpenWriter(queueDir, testOptions(mem)); err == nil {
		require.NoError(t, w.Close())
	}
}

// TestCheckFindsAllDamage damages several places at once.
func TestCheckFindsAllDamage(t *testing.T) {
	files, items := smallQueue(t, "none", true)
	first, second := bytes.Clone(files["0000000001.seg"]), bytes.Clone(files["0000000002.seg"])
	document := bytes.Index(first, []byte(items[0].document))
	first[document] ^= 1
	first[items[3].at.Block+20] ^= 1 // the table of its block
	other := bytes.Index(second, []byte(items[6].document))
	second[other] ^= 1
	mem := memWith(t, map[string][]byte{"0000000001.seg": first, "0000000002.seg": second})
	var progress []int64
	report, err := maintain.Check(context.Background(), queueDir, &maintain.CheckOptions{FS: mem, Progress: func(done, total int64) {
		require.LessOrEqual(t, done, total)
		progress = append(progress, done)
	}})
	require.NoError(t, err)
	require.Len(t, report.Damage, 3)
	assert.Equal(t, &queue.CorruptionError{
		Path: "/queue/0000000001.seg", Segment: 1, Offset: int64(document), ID: "id-0", Reason: report.Damage[0].Reason,
	}, report.Damage[0])
	assert.Contains(t, report.Damage[0].Reason, "checksum")
	assert.EqualValues(t, items[3].at.Block, report.Damage[1].Offset)
	assert.Equal(t, "id-1", report.Damage[2].ID)
	assert.EqualValues(t, 2, report.Damage[2].Segment)
	assert.True(t, slices.IsSorted(progress))
	assert.EqualValues(t, len(first)+len(second), progress[len(progress)-1])
	assert.Equal(t, 2, report.Segments)

	one, err := maintain.CheckFile(context.Background(), mem, queueDir, "0000000002.seg")
	require.NoError(t, err)
	assert.Equal(t, report.Damage[2:], one.Damage)
	_, err = maintain.CheckFile(context.Background(), mem, queueDir, "0000000003.seg")
	require.ErrorContains(t, err, "0000000003")
}

func TestCheckFindsMissingSegments(t *testing.T) {
	files, _ := smallQueue(t, "none", true)
	mem := memWith(t, map[string][]byte{"0000000002.seg": files["0000000002.seg"]})
	report, err := maintain.Check(context.Background(), queueDir, &maintain.CheckOptions{FS: mem})
	require.NoError(t, err)
	assert.Equal(t, []queue.SegmentID{1}, report.Missing)
	assert.Empty(t, report.Damage)
}

// TestReaderUsesReplacedFile: a reader finds the good copy of a damaged file without a
// restart.
func TestReaderUsesReplacedFile(t *testing.T) {
	for _, codec := range codec.Names() {
		files, items := smallQueue(t, codec, true)
		damaged := bytes.Clone(files["0000000001.seg"])
		h, err := segment.ParseHeader(damaged[:segment.HeaderBytes])
		require.NoError(t, err)
		end := len(damaged) - segment.FooterBytes
		for i := int(h.FirstFrame()) + 4; i < end; i += 3 {
			damaged[i] ^= 1
		}
		mem := memWith(t, map[string][]byte{"0000000001.seg": damaged, "0000000002.seg": files["0000000002.seg"]})
		r := openReader(t, mem)
		_, err = r.Document(nil, items[0].at)
		require.ErrorIs(t, err, queue.ErrUnavailable)
		require.ErrorIs(t, err, queue.ErrCorrupt)
		_, err = tryScan(r, queue.Position{})
		var corruption *queue.CorruptionError
		require.ErrorAs(t, err, &corruption)
		assert.Equal(t, "/queue/0000000001.seg", corruption.Path)

		require.NoError(t, vfs.WriteFileAtomic(mem, queueDir+"/0000000001.seg", files["0000000001.seg"]))
		requireItems(t, r, items)

		// The reverse: the good file is cached when a damaged one replaces it.
		require.NoError(t, vfs.WriteFileAtomic(mem, queueDir+"/0000000001.seg", damaged))
		requireDocuments(t, r, items)
	}
}

// TestOpenFileReadIfSealedIsPartial: the sealed file is only half copied, and the open
// one has more.
func TestOpenFileReadIfSealedIsPartial(t *testing.T) {
	files, items := smallQueue(t, "none", true)
	whole := files["0000000001.seg"]
	for cut := 0; cut < len(whole); cut += 7 {
		mem := memWith(t, map[string][]byte{
			"0000000001.seg":  whole[:cut],
			"0000000001.open": whole,
			"0000000002.seg":  files["0000000002.seg"],
		})
		requireItems(t, openReader(t, mem), items)
	}
}

func TestForeignAndForkedSegments(t *testing.T) {
	files, items := smallQueue(t, "none", true)
	mem := newMem(t)
	opts := testOptions(mem)
	opts.SetTest(func() time.Time { return testStart }, nil)
	w := openWriter(t, opts)
	for range 2 {
		_, err := w.Append([]byte("id"), []byte("foreign"))
		require.NoError(t, err)
		require.NoError(t, w.Seal())
	}
	var foreign [2][]byte
	for i := range foreign {
		var err error
		foreign[i], err = vfs.ReadFile(mem, segment.Path(queueDir, queue.SegmentID(i+1), segment.SealedSuffix))
		require.NoError(t, err)
	}

	t.Run("position", func(t *testing.T) {
		r := openReader(t, memWith(t, map[string][]byte{"0000000001.seg": foreign[0]}))
		_, err := tryScan(r, queue.Position{Queue: [16]byte{1}})
		require.ErrorIs(t, err, queue.ErrForked)
	})
	t.Run("next segment", func(t *testing.T) {
		mem := memWith(t, map[string][]byte{
			"0000000001.seg": files["0000000001.seg"], "0000000002.seg": foreign[1],
		})
		got, err := tryScan(openReader(t, mem), queue.Position{})
		require.ErrorIs(t, err, queue.ErrForked)
		require.Len(t, got, 5)
		report, err := maintain.CheckFile(context.Background(), mem, queueDir, "0000000002.seg")
		require.NoError(t, err)
		require.Empty(t, report.Damage)
	})
	t.Run("same queue other history", func(t *testing.T) {
		other := newMem(t)
		w := openWriter(t, testOptions(other))
		_, err := w.Append([]byte("id"), []byte("other"))
		require.NoError(t, err)
		require.NoError(t, w.Close())
		content, err := vfs.ReadFile(other, segment.Path(queueDir, 1, segment.SealedSuffix))
		require.NoError(t, err)
		mem := memWith(t, map[string][]byte{"0000000001.seg": content, "0000000002.seg": files["0000000002.seg"]})
		_, err = tryScan(openReader(t, mem), queue.Position{})
		require.ErrorIs(t, err, queue.ErrForked)
		report, err := maintain.Check(context.Background(), queueDir, &maintain.CheckOptions{FS: mem})
		require.NoError(t, err)
		require.Len(t, report.Damage, 1)
		assert.Contains(t, report.Damage[0].Reason, "the digest of segment 1 is")

		_, err = openReader(t, mem).DocumentFor(nil, []byte(items[0].id), items[0].at)
		require.ErrorIs(t, err, queue.ErrUnavailable, "another history's document at the address")
	})
	t.Run("wrong name", func(t *testing.T) {
		r := openReader(t, memWith(t, map[string][]byte{"0000000001.seg": files["0000000002.seg"]}))
		_, err := tryScan(r, queue.Position{})
		require.ErrorIs(t, err, queue.ErrCorrupt)
		require.ErrorContains(t, err, "header names segment 2")
		_, err = r.Document(nil, queue.Address{Segment: 1, Block: items[7].at.Block, Index: items[7].at.Index})
		require.ErrorIs(t, err, queue.ErrUnavailable)
	})
	t.Run("diverged", func(t *testing.T) {
		r := openReader(t, memWith(t, files))
		for _, next := range []queue.Address{
			{Segment: 1, Block: uint32(len(files["0000000001.seg"])), Index: 0},
			{Segment: 1, Block: 5, Index: 0},
			{Segment: 1, Block: segment.HeaderBytes, Index: 60},
		} {
			_, err := tryScan(r, queue.Position{Queue: items[0].queue(), Next: next})
			require.ErrorIs(t, err, queue.ErrDiverged, "%v", next)
		}
	})
}

// queue is the id of queues with testOptions.
func (item) queue() [16]byte { return [16]byte([]byte("0123456789abcdef")) }

func TestNewerVersion(t *testing.T) {
	files, items := smallQueue(t, "none", true)
	newer := bytes.Clone(files["0000000001.seg"])
	newer[12] = 1
	segment.Little.PutUint32(newer[8:], crcOf(newer[12:segment.HeaderBytes]))
	mem := memWith(t, map[string][]byte{"0000000001.seg": newer})
	r := openReader(t, mem)
	_, err := tryScan(r, queue.Position{})
	require.ErrorIs(t, err, queue.ErrNewerVersion)
	require.NotErrorIs(t, err, queue.ErrCorrupt)
	_, err = r.Document(nil, items[0].at)
	require.ErrorIs(t, err, queue.ErrNewerVersion)
	require.ErrorIs(t, err, queue.ErrUnavailable)
	_, err = queue.OpenWriter(queueDir, testOptions(mem))
	require.ErrorIs(t, err, queue.ErrNewerVersion)
}
