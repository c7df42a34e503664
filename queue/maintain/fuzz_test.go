package maintain_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"docstore/queue"
	"docstore/queue/internal/queuetest"
	"docstore/queue/internal/segment"
	"docstore/queue/maintain"

	"github.com/stretchr/testify/require"
)

// FuzzRepair reads arbitrary bytes as a segment, alone or before another one. A repair
// makes the queue whole, and loses no document that could be fetched without its id.
func FuzzRepair(f *testing.F) {
	files, items := queuetest.SmallQueue(f, "none", true)
	content := files["0000000001.seg"]
	f.Add(content[:len(content)-100], true, true)
	f.Add(content[100:], true, false)
	f.Add(append(bytes.Clone(content[:items[2].At.Block]), content[items[2].At.Block+9:]...), false, true)
	f.Add(queuetest.FixChecksums(content[:len(content)-segment.FooterBytes]), false, false)
	table := segment.BlockHeaderBytes + 2*segment.EntryBytes // without the ids; one has an empty document
	f.Add(content[:int(items[3].At.Block)+table], false, true)
	f.Fuzz(func(t *testing.T, content []byte, sealed, last bool) {
		there := map[string][]byte{"0000000001.open": content}
		if sealed {
			there = map[string][]byte{"0000000001.seg": content}
		}
		if !last {
			there["0000000002.seg"] = files["0000000002.seg"]
		}
		mem := queuetest.SourceWith(t, there)
		r, err := queue.OpenReader(queuetest.Dir, &queue.ReaderOptions{FS: mem})
		require.NoError(t, err)
		defer r.Close()
		var found []queuetest.Item
		for _, it := range items {
			if _, err := r.Document(nil, it.At); err == nil {
				found = append(found, it)
			}
		}
		if _, err := maintain.Repair(context.Background(), queuetest.Dir, &maintain.RepairOptions{FS: mem}); err != nil {
			require.True(t, errors.Is(err, queue.ErrForked) || errors.Is(err, queue.ErrNewerVersion), "%v", err)
			return
		}
		report, err := maintain.Check(context.Background(), queuetest.Dir, &maintain.CheckOptions{FS: mem})
		require.NoError(t, err)
		require.Empty(t, report.Damage)
		require.Empty(t, report.Missing)
		queuetest.RequireDocuments(t, r, found)
	})
}

// FuzzRewrite reads arbitrary bytes as a rewrite of a segment that is followed by another
// one. A delivered document can be fetched or is unavailable; if a check finds no damage,
// there is none; and a repair makes the queue whole.
func FuzzRewrite(f *testing.F) {
	const name = "0000000001-0000000001.0001.seg"
	files, items := queuetest.SmallQueue(f, "none", true)
	for _, seed := range []string{"compact", "repair"} {
		content, err := os.ReadFile(filepath.Join("testdata", "v0-"+seed, name))
		require.NoError(f, err)
		f.Add(content, true)
		f.Add(content, false)
		f.Add(content[:len(content)-segment.FooterBytes], true)
	}
	f.Fuzz(func(t *testing.T, content []byte, mended bool) {
		if mended {
			content = queuetest.FixChecksums(content)
		}
		mem := queuetest.SourceWith(t, map[string][]byte{name: content, "0000000002.seg": files["0000000002.seg"]})
		r, err := queue.OpenReader(queuetest.Dir, &queue.ReaderOptions{FS: mem})
		require.NoError(t, err)
		defer r.Close()
		entries, _ := queuetest.TryScan(r, queue.Position{})
		again, _ := queuetest.TryScan(r, queue.Position{})
		require.Equal(t, entries, again)
		report, err := maintain.Check(context.Background(), queuetest.Dir, &maintain.CheckOptions{FS: mem, Decode: true})
		if errors.Is(err, queue.ErrNewerVersion) {
			return
		}
		require.NoError(t, err)
		for _, e := range entries {
			_, err := r.DocumentFor(nil, []byte(e.ID), e.At)
			var lost *queue.LostError
			switch {
			case e.Deleted && !errors.Is(err, queue.ErrUnavailable):
				require.ErrorIs(t, err, queue.ErrDeleted)
			case err != nil && !e.Deleted && !errors.As(err, &lost):
				require.ErrorIs(t, err, queue.ErrUnavailable)
				require.NotEmpty(t, report.Damage, "a check found nothing wrong: %v", err)
			}
		}
		for _, it := range items {
			_, _ = r.DocumentFor(nil, []byte(it.ID), it.At)
		}
		if _, err := maintain.Repair(context.Background(), queuetest.Dir, &maintain.RepairOptions{FS: mem}); err != nil {
			require.ErrorIs(t, err, queue.ErrForked)
			return
		}
		report, err = maintain.Check(context.Background(), queuetest.Dir, &maintain.CheckOptions{FS: mem})
		require.NoError(t, err)
		require.Empty(t, report.Damage)
		require.Empty(t, report.Missing)
	})
}
