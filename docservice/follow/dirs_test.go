package follow

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/internal/vfs"
)

// TestCurrentIsChecked: a file with any flipped bit is damaged, and one of an earlier build, which
// has no checksum, is read.
func TestCurrentIsChecked(t *testing.T) {
	mem := vfs.NewMem()
	require.NoError(t, vfs.MakeDir(mem, "/f"))
	f := &Follower{fs: mem, dir: "/f"}
	want := current{State: 2, Extended: true, Goal: goal{}}
	want.Ref.Number = 17
	require.NoError(t, f.save(want))
	content, err := vfs.ReadFile(mem, "/f/"+currentName)
	require.NoError(t, err)
	got, err := parseCurrent(content)
	require.NoError(t, err)
	require.Equal(t, want, got)
	for i := range content {
		for bit := range 8 {
			content[i] ^= 1 << bit
			if got, err := parseCurrent(content); err == nil {
				require.Equal(t, want, got, "byte %d, bit %d", i, bit) // the name of the checksum
			} else {
				require.ErrorIs(t, err, errCurrentDamaged, "byte %d, bit %d", i, bit)
			}
			content[i] ^= 1 << bit
		}
	}
	line, err := json.Marshal(want) // as of an earlier build
	require.NoError(t, err)
	got, err = parseCurrent(line)
	require.NoError(t, err)
	require.Equal(t, want, got)
}

// FuzzCurrent: parsed content matches its checksum, or is that of an earlier build and has none.
func FuzzCurrent(f *testing.F) {
	f.Add([]byte("{\"state\":1,\"manifest\":{}}\n"))
	f.Add([]byte("{\"state\":2,\"sum\":\"00000000\"}"))
	f.Fuzz(func(t *testing.T, content []byte) {
		if c, err := parseCurrent(content); err == nil {
			require.Positive(t, c.State)
		} else {
			require.ErrorIs(t, err, errCurrentDamaged)
		}
	})
}
