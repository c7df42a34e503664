package queue_test

import (
	"bytes"
	"testing"

	"docstore/queue/internal/segment"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestUnknownCodec: documents that are stored raw can be read without the codec.
func TestUnknownCodec(t *testing.T) {
	files, items := smallQueue(t, "none", true)
	content := bytes.Clone(files["0000000001.seg"])
	content[36] = 77
	segment.Little.PutUint32(content[8:], crcOf(content[12:segment.HeaderBytes]))
	mem := memWith(t, map[string][]byte{"0000000001.seg": content})
	r := openReader(t, mem)
	got, err := r.Document(nil, items[0].at)
	require.NoError(t, err, "stored raw, so any build can read it")
	require.Equal(t, items[0].document, string(got))

	infos, err := r.Segments()
	require.NoError(t, err)
	assert.Equal(t, "codec 77", infos[0].Codec)
}
