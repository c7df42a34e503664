package queue_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"docstore/queue"
	"docstore/queue/codec"
	"docstore/queue/internal/segment"
	"docstore/queue/maintain"

	"github.com/stretchr/testify/require"
)

// fixChecksums corrects the checksums of all headers and frames in content, so that fuzzing
// reaches the code behind them.
func fixChecksums(content []byte) []byte {
	content = bytes.Clone(content)
	seal := func(frame []byte) { segment.Little.PutUint32(frame, crcOf(frame[4:])) }
	if len(content) < segment.HeaderBytes {
		return content
	}
	copy(content, segment.SegmentMagic)
	segment.Little.PutUint32(content[8:], crcOf(content[12:segment.HeaderBytes]))
	chain := segment.Little.Uint32(content[8:])
	relocationsAt := uint64(0)
	offset := uint64(segment.HeaderBytes) + uint64(segment.Little.Uint32(content[92:]))
	for offset+segment.MarkBytes <= uint64(len(content)) {
		frame := content[offset:]
		switch segment.FrameType(frame[4]) {
		case segment.FrameBlock:
			if len(frame) < segment.BlockHeaderBytes {
				return content
			}
			table := segment.BlockHeaderBytes + uint64(segment.Little.Uint32(frame[8:]))
			if table > uint64(len(frame)) {
				return content
			}
			segment.Little.PutUint32(frame[16:], chain)
			seal(frame[:table])
			chain = segment.Little.Uint32(frame)
			offset += table + uint64(segment.Little.Uint32(frame[12:]))
		case segment.FrameMark:
			segment.Little.PutUint32(frame[8:], uint32(offset))
			segment.Little.PutUint32(frame[12:], chain)
			seal(frame[:segment.MarkBytes])
			offset += segment.MarkBytes
		case segment.FrameFooter:
			if len(frame) != segment.FooterBytes {
				return content
			}
			segment.Little.PutUint32(frame[8:], uint32(offset))
			segment.Little.PutUint32(frame[12:], chain)
			copy(frame[16:], content[16:36])
			segment.Little.PutUint32(frame[44:], uint32(relocationsAt))
			seal(frame)
			return content
		case segment.FrameRelocations:
			if len(frame) < segment.RelocationsHeadBytes || segment.RelocationsSize(frame) > int64(len(frame)) {
				return content
			}
			size := segment.RelocationsSize(frame)
			segment.Little.PutUint32(frame[8:], uint32(offset))
			seal(frame[:size])
			relocationsAt = offset
			offset += uint64(size)
		default:
			return content
		}
	}
	return content
}

// FuzzSegment reads arbitrary bytes as a segment. A delivered document can be fetched or
// is unavailable, twice with the same result; if a check finds no damage, there is none;
// and a writer refuses the file or continues after the entries that readers see.
func FuzzSegment(f *testing.F) {
	for _, codec := range codec.Names() {
		files, _ := smallQueue(f, codec, true)
		f.Add(files["0000000001.seg"], true, true)
		f.Add(files["0000000001.seg"], false, false)
		f.Add(files["0000000001.seg"][:500], true, false)
	}
	f.Fuzz(func(t *testing.T, content []byte, sealed, mended bool) {
		if mended {
			content = fixChecksums(content)
		}
		name := "0000000001.open"
		if sealed {
			name = "0000000001.seg"
		}
		mem := memWith(t, map[string][]byte{name: content})
		r, err := queue.OpenReader(queueDir, &queue.ReaderOptions{FS: mem})
		require.NoError(t, err)
		defer r.Close()
		entries, scanErr := tryScan(r, queue.Position{})
		again, _ := tryScan(r, queue.Position{})
		require.Equal(t, entries, again)
		report, err := maintain.Check(context.Background(), queueDir, &maintain.CheckOptions{FS: mem, Decode: true})
		require.True(t, err == nil || errors.Is(err, queue.ErrNewerVersion), "%v", err)
		whole := err == nil && len(report.Damage) == 0
		for _, e := range entries {
			_, err := r.DocumentFor(nil, []byte(e.id), e.at)
			switch {
			case e.deleted && !errors.Is(err, queue.ErrUnavailable):
				require.ErrorIs(t, err, queue.ErrDeleted)
			case err != nil && !e.deleted:
				require.ErrorIs(t, err, queue.ErrUnavailable)
				if !errors.Is(err, queue.ErrUnknownCodec) { // Check skips these documents
					require.False(t, whole, "a check found nothing wrong: %v", err)
				}
			}
		}
		if whole && sealed {
			require.NoError(t, scanErr)
			require.EqualValues(t, len(entries), report.Entries)
		}
		_, err = r.Segments()
		require.NoError(t, err)
		if len(entries) > 0 && whole {
			require.Equal(t, entries[len(entries)-1].next, r.End())
		}
		w, err := queue.OpenWriter(queueDir, testOptions(mem))
		if err != nil {
			return
		}
		at, err := w.Append([]byte("id"), []byte("document"))
		require.NoError(t, err)
		require.NoError(t, w.Close())
		require.Greater(t, at.Segment, queue.SegmentID(1))
		if after, err := tryScan(r, queue.Position{}); err == nil {
			require.GreaterOrEqual(t, len(after), len(entries)+1)
		}
	})
}

// FuzzRepair reads arbitrary bytes as a segment, alone or before another one. A repair
// makes the queue whole, and loses no document that could be fetched without its id.
func FuzzRepair(f *testing.F) {
	files, items := smallQueue(f, "none", true)
	content := files["0000000001.seg"]
	f.Add(content[:len(content)-100], true, true)
	f.Add(content[100:], true, false)
	f.Add(append(bytes.Clone(content[:items[2].at.Block]), content[items[2].at.Block+9:]...), false, true)
	f.Add(fixChecksums(content[:len(content)-segment.FooterBytes]), false, false)
	table := segment.BlockHeaderBytes + 2*segment.EntryBytes // without the ids; one has an empty document
	f.Add(content[:int(items[3].at.Block)+table], false, true)
	f.Fuzz(func(t *testing.T, content []byte, sealed, last bool) {
		there := map[string][]byte{"0000000001.open": content}
		if sealed {
			there = map[string][]byte{"0000000001.seg": content}
		}
		if !last {
			there["0000000002.seg"] = files["0000000002.seg"]
		}
		mem := sourceWith(t, there)
		r, err := queue.OpenReader(queueDir, &queue.ReaderOptions{FS: mem})
		require.NoError(t, err)
		defer r.Close()
		var found []item
		for _, it := range items {
			if _, err := r.Document(nil, it.at); err == nil {
				found = append(found, it)
			}
		}
		if _, err := maintain.Repair(context.Background(), queueDir, &maintain.RepairOptions{FS: mem}); err != nil {
			require.True(t, errors.Is(err, queue.ErrForked) || errors.Is(err, queue.ErrNewerVersion), "%v", err)
			return
		}
		report, err := maintain.Check(context.Background(), queueDir, &maintain.CheckOptions{FS: mem})
		require.NoError(t, err)
		require.Empty(t, report.Damage)
		require.Empty(t, report.Missing)
		requireDocuments(t, r, found)
	})
}

// FuzzRewrite reads arbitrary bytes as a rewrite of a segment that is followed by another
// one. A delivered document can be fetched or is unavailable; if a check finds no damage,
// there is none; and a repair makes the queue whole.
func FuzzRewrite(f *testing.F) {
	const name = "0000000001-0000000001.0001.seg"
	files, items := smallQueue(f, "none", true)
	for _, seed := range []string{"compact", "repair"} {
		content, err := os.ReadFile(filepath.Join("testdata", "v0-"+seed, name))
		require.NoError(f, err)
		f.Add(content, true)
		f.Add(content, false)
		f.Add(content[:len(content)-segment.FooterBytes], true)
	}
	f.Fuzz(func(t *testing.T, content []byte, mended bool) {
		if mended {
			content = fixChecksums(content)
		}
		mem := sourceWith(t, map[string][]byte{name: content, "0000000002.seg": files["0000000002.seg"]})
		r, err := queue.OpenReader(queueDir, &queue.ReaderOptions{FS: mem})
		require.NoError(t, err)
		defer r.Close()
		entries, _ := tryScan(r, queue.Position{})
		again, _ := tryScan(r, queue.Position{})
		require.Equal(t, entries, again)
		report, err := maintain.Check(context.Background(), queueDir, &maintain.CheckOptions{FS: mem, Decode: true})
		if errors.Is(err, queue.ErrNewerVersion) {
			return
		}
		require.NoError(t, err)
		for _, e := range entries {
			_, err := r.DocumentFor(nil, []byte(e.id), e.at)
			var lost *queue.LostError
			switch {
			case e.deleted && !errors.Is(err, queue.ErrUnavailable):
				require.ErrorIs(t, err, queue.ErrDeleted)
			case err != nil && !e.deleted && !errors.As(err, &lost):
				require.ErrorIs(t, err, queue.ErrUnavailable)
				require.NotEmpty(t, report.Damage, "a check found nothing wrong: %v", err)
			}
		}
		for _, it := range items {
			_, _ = r.DocumentFor(nil, []byte(it.id), it.at)
		}
		if _, err := maintain.Repair(context.Background(), queueDir, &maintain.RepairOptions{FS: mem}); err != nil {
			require.ErrorIs(t, err, queue.ErrForked)
			return
		}
		report, err = maintain.Check(context.Background(), queueDir, &maintain.CheckOptions{FS: mem})
		require.NoError(t, err)
		require.Empty(t, report.Damage)
		require.Empty(t, report.Missing)
	})
}
