package queue

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestCheckDecodes: a document with right checksums that does not decode is found only by
// decoding.
func TestCheckDecodes(t *testing.T) {
	files, items := smallQueue(t, "s2", true)
	content := files["0000000001.seg"]
	h, err := parseBlockHeader(content[items[0].at.Block:])
	require.NoError(t, err)
	b := block{blockHeader: h, bytes: content[items[0].at.Block:][:h.dataOffset()]}
	e := b.entry(0)
	require.True(t, e.hasCoded())
	stored := content[items[0].at.Block:][h.dataOffset()+int64(e.start) : h.dataOffset()+int64(e.end)]
	clear(stored)
	little.PutUint32(b.bytes[blockHeaderBytes+12:], documentCRC(items[0].at, e.rawAndFlags, b.id(e), stored))
	mem := memWith(t, map[string][]byte{"0000000001.seg": fixChecksums(content)})
	require.Empty(t, checkDamage(t, mem))
	report, err := Check(context.Background(), queueDir, &CheckOptions{FS: mem, Decode: true})
	require.NoError(t, err)
	require.Len(t, report.Damage, 1)
	require.Equal(t, items[0].id, report.Damage[0].ID)
}
