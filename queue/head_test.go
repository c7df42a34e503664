package queue_test

import (
	"bytes"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"docstore/internal/checksum"
	"docstore/internal/vfs"
	"docstore/internal/virtualtime"
	"docstore/queue"
	"docstore/queue/internal/queuetest"
	"docstore/queue/internal/segment"
	"docstore/queue/maintain"

	"github.com/stretchr/testify/require"
)

// encodeHead returns the bytes of a head file.
func encodeHead(h queue.Head) []byte {
	b, _ := h.MarshalText() // it has no errors
	return b
}

// testHead is the example of docs/format/head.md.
func testHead(t *testing.T) queue.Head {
	id := [16]byte([]byte("0123456789abcdef"))
	return queue.Head{
		Queue: id, Highest: 2, Sealed: 1, Digest: [32]byte(mustHex(t, "a13e9dbf70b505557933d3e080669dfb2490067e3b58fdc4ecc32b76a1f5c567")),
		End: queue.Position{
			Queue: id, Next: queue.Address{Segment: 2, Block: 188},
			Proof: queue.Proof{Footer: queue.FooterDigest(mustHex(t, "a13e9dbf70b505557933d3e080669dfb")), Chain: 0x1ea1cfbb},
		},
		Time: queuetest.Start,
	}
}

func TestHead(t *testing.T) {
	head := testHead(t)
	for _, h := range []queue.Head{head, {Time: queuetest.Start}, {Queue: head.Queue, Highest: 1<<32 - 1, Time: time.UnixMilli(-1)}} {
		mem := queuetest.MemWith(t, map[string][]byte{queue.HeadName: encodeHead(h)})
		got, err := queue.ReadHead(mem, queuetest.Dir)
		require.NoError(t, err)
		require.Equal(t, h, got)
	}
	_, err := queue.ReadHead(queuetest.NewMem(t), queuetest.Dir)
	require.ErrorIs(t, err, fs.ErrNotExist)

	page, err := os.ReadFile("../docs/format/head.md")
	require.NoError(t, err)
	require.Contains(t, string(page), "```\n"+string(encodeHead(head))+"```\n")
}

// TestEveryByteOfTheHeadDamaged: a damaged head is never read as another head.
func TestEveryByteOfTheHeadDamaged(t *testing.T) {
	const maxHeadBytes = 4 << 10
	head := testHead(t)
	whole := encodeHead(head)
	require.Less(t, len(whole), maxHeadBytes/4)
	refuse := func(content []byte, how string) {
		_, err := queue.ReadHead(queuetest.MemWith(t, map[string][]byte{queue.HeadName: content}), queuetest.Dir)
		var corruption *queue.CorruptionError
		require.ErrorAs(t, err, &corruption, how)
		require.Equal(t, "/queue/"+queue.HeadName, corruption.Path)
	}
	for at := range whole {
		for bit := range 8 {
			flipped := bytes.Clone(whole)
			flipped[at] ^= 1 << bit
			refuse(flipped, fmt.Sprintf("byte %d, bit %d", at, bit))
		}
		refuse(whole[:at], fmt.Sprint("cut at ", at))
	}
	refuse(append(bytes.Clone(whole), '\n'), "a byte more")
	refuse(append(bytes.Clone(whole), whole...), "twice")
	refuse(bytes.Repeat([]byte("\n"), maxHeadBytes+1), "too long")

	// The checksum is right, so the form must be checked, too.
	resum := func(s string) []byte { return fmt.Appendf(nil, "%scrc %08x\n", s, checksum.Update(0, []byte(s))) }
	fields, _, _ := strings.Cut(string(whole), "crc")
	for _, change := range [][2]string{
		{"highest 2", "highest 02"}, {"highest 2", "highest -2"}, {"highest 2", "highest 4294967296"}, {"queue 30", "queue "},
		{"sealed 1\n", ""}, {"time ", "more 1\ntime "}, {"chain 1e", "chain 1E"}, {"version 0", "version x"}, {"footer a1", "footer a1a1"},
	} {
		refuse(resum(strings.Replace(fields, change[0], change[1], 1)), fmt.Sprint(change))
	}
	refuse(resum(""), "a checksum alone")
	newer := resum(strings.Replace(fields, "version 0", "version 1", 1) + "another field\n")
	_, err := queue.ReadHead(queuetest.MemWith(t, map[string][]byte{queue.HeadName: newer}), queuetest.Dir)
	require.ErrorIs(t, err, queue.ErrNewerVersion)
	require.NotErrorIs(t, err, queue.ErrCorrupt)
}

// TestHeadFollowsTheWriter: the head exists before a segment has a block. It states
// sealed segments at once and flushed entries at most a second later.
func TestHeadFollowsTheWriter(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		mem := queuetest.NewMem(t)
		opts := queuetest.Options(mem)
		opts.BlockBytes = 1
		opts.Now = time.Now
		w := queuetest.OpenWriter(t, opts)
		_, err := queue.ReadHead(mem, queuetest.Dir)
		require.ErrorIs(t, err, fs.ErrNotExist, "there is no segment yet, and so no id")
		add := func(ids ...string) {
			for _, id := range ids {
				_, err := w.Append([]byte(id), []byte("document"))
				require.NoError(t, err)
			}
		}
		add("a", "b")
		settle(t, w)
		head := queuetest.RequireHead(t, mem)
		require.NotZero(t, head.Queue)
		require.Equal(t, queue.Head{Queue: head.Queue, Highest: 1, Time: head.Time}, head)

		require.NoError(t, w.Flush())
		before, err := queue.ReadHead(mem, queuetest.Dir)
		require.NoError(t, err)
		require.Equal(t, head, before, "less than a second ago")
		time.Sleep(time.Second)
		add("c")
		require.NoError(t, w.Flush())
		head = queuetest.RequireHead(t, mem)
		require.EqualValues(t, 1, head.End.Next.Segment)
		require.NotZero(t, head.End.Proof.Chain)

		require.NoError(t, w.Seal())
		head = queuetest.RequireHead(t, mem)
		require.EqualValues(t, 1, head.Sealed)
		add("d")
		require.NoError(t, w.Seal())
		head = queuetest.RequireHead(t, mem)
		require.EqualValues(t, 2, head.Sealed)

		time.Sleep(30 * time.Second)
		synctest.Wait()
		idle := queuetest.RequireHead(t, mem)
		require.GreaterOrEqual(t, idle.Time.Sub(head.Time), 20*time.Second, "an idle writer is alive")
		require.NoError(t, w.Close())
		closed := queuetest.RequireHead(t, mem)
		recovered := mem.CrashClone(vfs.KeepSynced)
		require.Equal(t, closed, queuetest.RequireHead(t, recovered), "Close makes it durable")

		w = queuetest.OpenWriter(t, opts)
		require.Equal(t, closed.End, queuetest.RequireHead(t, mem).End)
		require.NoError(t, w.Close())
	})
}

// TestWriterRefusesIncompleteDirectory: a segment number is never used twice.
func TestWriterRefusesIncompleteDirectory(t *testing.T) {
	write := func(mem *vfs.Mem, from int) {
		opts := queuetest.Options(mem)
		opts.BlockBytes = 1
		w, err := queue.OpenWriter(queuetest.Dir, opts)
		require.NoError(t, err)
		for i := from; i < from+3; i++ {
			_, err := w.Append([]byte(fmt.Sprint(i)), fmt.Appendf(nil, "document %d", i))
			require.NoError(t, err)
		}
		require.NoError(t, w.Close())
	}
	read := func(mem *vfs.Mem, name string) []byte {
		content, err := vfs.ReadFile(mem, queuetest.Dir+"/"+name)
		require.NoError(t, err)
		return content
	}
	source := queuetest.NewMem(t)
	write(source, 0)
	write(source, 3)
	// Copies of the last segment from when it was open, and from another history.
	last := read(source, "0000000002.seg")
	var b segment.Block
	s, err := segment.Open(source, queuetest.Dir+"/0000000002.seg", 2)
	require.NoError(t, err)
	_, err = s.Frame(&b, segment.HeaderBytes)
	require.NoError(t, err)
	s.Close()
	second := segment.HeaderBytes + int(b.Size())
	other := queuetest.MemWith(t, map[string][]byte{"0000000001.seg": read(source, "0000000001.seg")})
	write(other, 7)
	head := read(source, queue.HeadName)
	open := queuetest.RequireHead(t, source)
	open.Sealed, open.Digest = 1, s.Header.Previous
	unsealed := encodeHead(open)

	for name, test := range map[string]struct {
		files map[string][]byte // in addition to the first segment
		keep  string
	}{
		"newest segment removed": {map[string][]byte{queue.HeadName: head}, "1"},
		"open segment removed":   {map[string][]byte{queue.HeadName: unsealed}, "1"},
		"older, still open":      {map[string][]byte{queue.HeadName: head, "0000000002.open": last[:second]}, "1"},
		"another history":        {map[string][]byte{queue.HeadName: head, "0000000002.seg": read(other, "0000000002.seg")}, "1"},
		"open and shorter":       {map[string][]byte{queue.HeadName: unsealed, "0000000002.open": last[:second]}, fmt.Sprint("2/", second, "/0")},
		"open and empty":         {map[string][]byte{queue.HeadName: unsealed, "0000000002.open": last[:segment.HeaderBytes]}, "2/128/0"},
	} {
		t.Run(name, func(t *testing.T) {
			test.files["0000000001.seg"] = read(source, "0000000001.seg")
			mem := queuetest.MemWith(t, test.files)
			for range 2 {
				_, err := queue.OpenWriter(queuetest.Dir, queuetest.Options(mem))
				require.ErrorIs(t, err, queue.ErrIncomplete)
				require.ErrorContains(t, err, "truncate --queue /queue --to "+test.keep)
			}
			for name, content := range test.files {
				require.Equal(t, content, read(mem, name), "it changes nothing")
			}
			if name != "another history" {
				report, err := maintain.Check(t.Context(), queuetest.Dir, &maintain.CheckOptions{FS: mem})
				require.NoError(t, err)
				require.Equal(t, strings.HasSuffix(name, "removed"), len(report.Missing) == 1, "%v", report)
			}
			// The files are restored.
			require.NoError(t, vfs.WriteFileAtomic(mem, queuetest.Dir+"/0000000002.seg", last))
			require.NoError(t, mem.RemoveAll(queuetest.Dir+"/0000000002.open"))
			write(mem, 6)
			queuetest.RequireHead(t, mem)
			require.Len(t, queuetest.Scan(t, queuetest.OpenReader(t, mem), queue.Position{}), 9)
			queuetest.RequireSound(t, mem)
		})
	}

	t.Run("check finds another history", func(t *testing.T) {
		mem := queuetest.MemWith(t, map[string][]byte{
			queue.HeadName: head, "0000000001.seg": read(source, "0000000001.seg"), "0000000002.seg": read(other, "0000000002.seg"),
		})
		report, err := maintain.Check(t.Context(), queuetest.Dir, &maintain.CheckOptions{FS: mem})
		require.NoError(t, err)
		require.Len(t, report.Damage, 1)
		require.Contains(t, report.Damage[0].Error(), queue.HeadName)
		require.Contains(t, report.Damage[0].Error(), queue.ErrForked.Error())
		mem = queuetest.SourceWith(t, map[string][]byte{
			queue.HeadName: head, "0000000001.seg": read(source, "0000000001.seg"), "0000000002.seg": read(other, "0000000002.seg"),
		})
		_, err = maintain.Repair(t.Context(), queuetest.Dir, &maintain.RepairOptions{FS: mem})
		require.ErrorIs(t, err, queue.ErrForked)
	})
	t.Run("a damaged or missing head is created again", func(t *testing.T) {
		for _, damaged := range [][]byte{nil, {}, head[:50], bytes.Repeat([]byte{0}, 100)} {
			mem := queuetest.SourceWith(t, map[string][]byte{"0000000001.seg": read(source, "0000000001.seg"), "0000000002.seg": last})
			if damaged != nil {
				require.NoError(t, vfs.WriteFileAtomic(mem, queuetest.Dir+"/"+queue.HeadName, damaged))
				report, err := maintain.Check(t.Context(), queuetest.Dir, &maintain.CheckOptions{FS: mem})
				require.NoError(t, err)
				require.Len(t, report.Damage, 1)
			}
			_, err := maintain.Repair(t.Context(), queuetest.Dir, &maintain.RepairOptions{FS: mem})
			require.NoError(t, err)
			queuetest.RequireSound(t, mem)
			if damaged != nil {
				require.NoError(t, vfs.WriteFileAtomic(mem, queuetest.Dir+"/"+queue.HeadName, damaged))
			}
			var log bytes.Buffer
			opts := queuetest.Options(mem)
			opts.Logger = slog.New(slog.NewTextHandler(&log, nil))
			require.NoError(t, queuetest.OpenWriter(t, opts).Close())
			require.Equal(t, damaged != nil, strings.Contains(log.String(), "level=WARN"))
			queuetest.RequireHead(t, mem)
		}
	})
	t.Run("a newer version", func(t *testing.T) {
		newer := bytes.Replace(head[:len(head)-len(fmt.Sprintf("crc %08x\n", 0))], []byte("version 0"), []byte("version 1"), 1)
		newer = fmt.Appendf(newer, "crc %08x\n", checksum.Update(0, newer))
		mem := queuetest.MemWith(t, map[string][]byte{queue.HeadName: newer})
		_, err := queue.OpenWriter(queuetest.Dir, queuetest.Options(mem))
		require.ErrorIs(t, err, queue.ErrNewerVersion)
		_, err = maintain.Check(t.Context(), queuetest.Dir, &maintain.CheckOptions{FS: mem})
		require.ErrorIs(t, err, queue.ErrNewerVersion)
	})
}
