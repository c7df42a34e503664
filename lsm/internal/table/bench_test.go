package table

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/internal/vfs"
	"docstore/lsm/internal/kv"
)

// BenchmarkTable finds a key's block in the index, and the key in the block.
func BenchmarkTable(b *testing.B) {
	const n = 1_000_000
	for _, c := range []struct{ keyBytes, valueBytes int }{{8, 96}, {16, 8}, {40, 200}} {
		env := testEnv()
		env.FS = vfs.OS
		path := filepath.Join(b.TempDir(), "table")
		w, err := Create(env, path, path+".spool", 1, false)
		require.NoError(b, err)
		key := func(i int) []byte { return fmt.Appendf(nil, "%0*x", c.keyBytes, uint64(i)<<8) }
		for i := range n {
			require.NoError(b, w.Add([]kv.Entry{{Key: key(i), Value: make([]byte, c.valueBytes)}}, false))
		}
		facts, err := w.Finish(1, n)
		require.NoError(b, err)
		r, err := Open(env, path, facts)
		require.NoError(b, err)
		b.Cleanup(r.close)
		random := rand.New(rand.NewPCG(1, 2))
		keys := make([][]byte, 1<<16)
		at := make([]int, len(keys))
		for i := range keys {
			keys[i] = key(random.IntN(n))
			at[i] = r.findBlock(keys[i])
		}
		b.Run(fmt.Sprintf("entry=%d+%d/index", c.keyBytes, c.valueBytes), func(b *testing.B) {
			for i := 0; b.Loop(); i++ {
				if k := i % len(keys); r.findBlock(keys[k]) != at[k] {
					b.Fatal("another block")
				}
			}
		})
		b.Run(fmt.Sprintf("entry=%d+%d/block", c.keyBytes, c.valueBytes), func(b *testing.B) {
			for i := 0; b.Loop(); i++ {
				k := i % len(keys)
				if _, found, err := r.search(at[k], keys[k]); !found || err != nil {
					b.Fatal(found, err)
				}
			}
		})
	}
}

// BenchmarkVerifyBlock verifies a block, which the first lookup in the block does.
func BenchmarkVerifyBlock(b *testing.B) {
	for _, keyBytes := range []int{8, 16} {
		b.Run(fmt.Sprintf("key=%d", keyBytes), func(b *testing.B) {
			var entries []kv.Entry
			for i := range (blockTargetBytes - blockHeaderBytes) / (keyBytes + 96) {
				entries = append(entries, kv.Entry{Key: fmt.Appendf(nil, "%0*d", keyBytes, i), Value: make([]byte, 96)})
			}
			block, fault := parseBlock(buildBlock(entries, false), 0)
			require.Nil(b, fault)
			for b.Loop() {
				if fault := block.checkEntries(); fault != nil || !block.headIsValid(0) || !block.valuesAreValid() {
					b.Fatal(fault)
				}
			}
		})
	}
}
