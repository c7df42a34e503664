package maintain_test

import (
	"bytes"
	"context"
	"slices"
	"testing"

	"docstore/queue"
	"docstore/queue/internal/queuetest"
	"docstore/queue/internal/segment"
	"docstore/queue/maintain"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestCheckDecodes: a document with right checksums that does not decode is found only by
// decoding.
func TestCheckDecodes(t *testing.T) {
	files, items := queuetest.SmallQueue(t, "s2", true)
	content := files["0000000001.seg"]
	h, err := segment.ParseBlockHeader(content[items[0].At.Block:])
	require.NoError(t, err)
	b := segment.Block{BlockHeader: h, Bytes: content[items[0].At.Block:][:h.DataOffset()]}
	e := b.Entry(0)
	require.True(t, e.HasCoded())
	stored := content[items[0].At.Block:][h.DataOffset()+int64(e.Start) : h.DataOffset()+int64(e.End)]
	clear(stored)
	segment.Little.PutUint32(b.Bytes[segment.BlockHeaderBytes+12:], segment.DocumentCRC(items[0].At, e.RawAndFlags, b.ID(e), stored))
	mem := queuetest.MemWith(t, map[string][]byte{"0000000001.seg": queuetest.FixChecksums(content)})
	require.Empty(t, checkDamage(t, mem))
	report, err := maintain.Check(context.Background(), queuetest.Dir, &maintain.CheckOptions{FS: mem, Decode: true})
	require.NoError(t, err)
	require.Len(t, report.Damage, 1)
	require.Equal(t, items[0].ID, report.Damage[0].ID)
}

// TestCheckFindsAllDamage damages several places at once.
func TestCheckFindsAllDamage(t *testing.T) {
	files, items := queuetest.SmallQueue(t, "none", true)
	first, second := bytes.Clone(files["0000000001.seg"]), bytes.Clone(files["0000000002.seg"])
	document := bytes.Index(first, []byte(items[0].Document))
	first[document] ^= 1
	first[items[3].At.Block+20] ^= 1 // the table of its block
	other := bytes.Index(second, []byte(items[6].Document))
	second[other] ^= 1
	mem := queuetest.MemWith(t, map[string][]byte{"0000000001.seg": first, "0000000002.seg": second})
	var progress []int64
	report, err := maintain.Check(context.Background(), queuetest.Dir, &maintain.CheckOptions{FS: mem, Progress: func(done, total int64) {
		require.LessOrEqual(t, done, total)
		progress = append(progress, done)
	}})
	require.NoError(t, err)
	require.Len(t, report.Damage, 3)
	assert.Equal(t, &queue.CorruptionError{
		Path: "/queue/0000000001.seg", Segment: 1, Offset: int64(document), ID: "id-0", Reason: report.Damage[0].Reason,
	}, report.Damage[0])
	assert.Contains(t, report.Damage[0].Reason, "checksum")
	assert.EqualValues(t, items[3].At.Block, report.Damage[1].Offset)
	assert.Equal(t, "id-1", report.Damage[2].ID)
	assert.EqualValues(t, 2, report.Damage[2].Segment)
	assert.True(t, slices.IsSorted(progress))
	assert.EqualValues(t, len(first)+len(second), progress[len(progress)-1])
	assert.Equal(t, 2, report.Segments)

	one, err := maintain.CheckFile(context.Background(), mem, queuetest.Dir, "0000000002.seg")
	require.NoError(t, err)
	assert.Equal(t, report.Damage[2:], one.Damage)
	_, err = maintain.CheckFile(context.Background(), mem, queuetest.Dir, "0000000003.seg")
	require.ErrorContains(t, err, "0000000003")
}

func TestCheckFindsMissingSegments(t *testing.T) {
	files, _ := queuetest.SmallQueue(t, "none", true)
	mem := queuetest.MemWith(t, map[string][]byte{"0000000002.seg": files["0000000002.seg"]})
	report, err := maintain.Check(context.Background(), queuetest.Dir, &maintain.CheckOptions{FS: mem})
	require.NoError(t, err)
	assert.Equal(t, []queue.SegmentID{1}, report.Missing)
	assert.Empty(t, report.Damage)
}
