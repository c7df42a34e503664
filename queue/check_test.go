package queue_test

import (
	"context"
	"testing"

	"docstore/queue/internal/segment"
	"docstore/queue/maintain"

	"github.com/stretchr/testify/require"
)

// TestCheckDecodes: a document with right checksums that does not decode is found only by
// decoding.
func TestCheckDecodes(t *testing.T) {
	files, items := smallQueue(t, "s2", true)
	content := files["0000000001.seg"]
	h, err := segment.ParseBlockHeader(content[items[0].at.Block:])
	require.NoError(t, err)
	b := segment.Block{BlockHeader: h, Bytes: content[items[0].at.Block:][:h.DataOffset()]}
	e := b.Entry(0)
	require.True(t, e.HasCoded())
	stored := content[items[0].at.Block:][h.DataOffset()+int64(e.Start) : h.DataOffset()+int64(e.End)]
	clear(stored)
	segment.Little.PutUint32(b.Bytes[segment.BlockHeaderBytes+12:], segment.DocumentCRC(items[0].at, e.RawAndFlags, b.ID(e), stored))
	mem := memWith(t, map[string][]byte{"0000000001.seg": fixChecksums(content)})
	require.Empty(t, checkDamage(t, mem))
	report, err := maintain.Check(context.Background(), queueDir, &maintain.CheckOptions{FS: mem, Decode: true})
	require.NoError(t, err)
	require.Len(t, report.Damage, 1)
	require.Equal(t, items[0].id, report.Damage[0].ID)
}
