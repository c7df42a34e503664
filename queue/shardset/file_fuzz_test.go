package shardset

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/internal/checksum"
)

// FuzzFile: the checksum covers the whole content, and content that is accepted has the fields
// that are accepted again.
func FuzzFile(f *testing.F) {
	type content struct {
		Format int      `json:"format"`
		Names  []string `json:"names"`
		N      uint64   `json:"n"`
	}
	seal := func(line []byte) []byte {
		line = append(line, '\n')
		return fmt.Appendf(line, "%08x\n", checksum.Of(line))
	}
	f.Add([]byte(fmt.Sprintf(`{"format":%d,"names":["a"],"n":1}`, fileFormat)))
	f.Add([]byte(`{"format":-1}`))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, line []byte) {
		var got content
		if parseFile(line, &got) == nil {
			line = line[:len(line)-len("\n00000000\n")] // the fuzzer found the checksum
		}
		var parsed content
		if parseFile(seal(line), &parsed) != nil {
			return
		}
		require.Equal(t, fileFormat, parsed.Format)
		again, err := json.Marshal(parsed)
		require.NoError(t, err)
		var same content
		require.NoError(t, parseFile(seal(again), &same))
		require.Equal(t, parsed, same)
		damaged := seal(again)
		damaged[len(again)/2] ^= 1
		require.Error(t, parseFile(damaged, &same))
	})
}
