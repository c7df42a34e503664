package queue_test

import (
	"bytes"
	"testing"

	"docstore/internal/checksum"
	"docstore/queue/internal/queuetest"
	"docstore/queue/internal/segment"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestUnknownCodec: documents that are stored raw can be read without the codec.
func TestUnknownCodec(t *testing.T) {
	files, items := queuetest.SmallQueue(t, "none", true)
	content := bytes.Clone(files["0000000001.seg"])
	content[36] = 77
	segment.Little.PutUint32(content[8:], checksum.Of(content[12:segment.HeaderBytes]))
	mem := queuetest.MemWith(t, map[string][]byte{"0000000001.seg": content})
	r := queuetest.OpenReader(t, mem)
	got, err := r.Document(nil, items[0].At)
	require.NoError(t, err, "stored raw, so any build can read it")
	require.Equal(t, items[0].Document, string(got))

	infos, err := r.Segments()
	require.NoError(t, err)
	assert.Equal(t, "codec 77", infos[0].Codec)
}
