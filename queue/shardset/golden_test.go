package shardset

import (
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/internal/vfs"
)

// The files of format 1 must stay readable.
func TestFilesOfFormat1(t *testing.T) {
	for name, test := range map[string]struct {
		content   string
		got, want any
	}{
		checkpointName: {
			`{"format":1,"cursor":"bGluZSAy","ends":[[1,208,0],[2,188,3]]}` + "\n" + "8364c199\n",
			&checkpoint{}, &checkpoint{Format: 1, Cursor: []byte("line 2"), Ends: []end{{1, 208, 0}, {2, 188, 3}}},
		},
		dictionaryName: {
			`{"format":1,"codec":"s2","content":"AAEC"}` + "\n" + "6daaa150\n",
			&dictionaryFile{}, &dictionaryFile{Format: 1, Codec: "s2", Content: []byte{0, 1, 2}},
		},
	} {
		fsys := vfs.NewMem()
		require.NoError(t, writeFile(fsys, name, test.want))
		written, err := vfs.ReadFile(fsys, name)
		require.NoError(t, err)
		require.Equal(t, test.content, string(written), "the format has changed")
		require.NoError(t, readFile(fsys, name, test.got))
		require.Equal(t, test.want, test.got)
	}
}
