package table

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"github.com/cockroachdb/errors"
	"github.com/stretchr/testify/require"

	"docstore/internal/testseed"
	"docstore/internal/vfs"
	"docstore/lsm/internal/kv"
)

// TestTablesOfAllShapesOfKeys looks up every key and its neighbours in tables of many
// blocks: keys of equal and different lengths, spread and clustered, with and without
// long common prefixes, so that the buckets of the index range from very useful to
// useless.
func TestTablesOfAllShapesOfKeys(t *testing.T) {
	r := testseed.Rand(t)
	for name, key := range map[string]func(i int) []byte{
		"random words":    func(int) []byte { return order.AppendUint64(nil, r.Uint64()) },
		"counting words":  func(i int) []byte { return fmt.Appendf(nil, "%08d", i) },
		"random lengths":  func(int) []byte { return bytes.Repeat([]byte{byte(r.IntN(3))}, r.IntN(2000)) },
		"common prefix":   func(i int) []byte { return fmt.Appendf(nil, "http://example.org/jobs/%d", i*i) },
		"one outlier":     func(i int) []byte { return fmt.Appendf(nil, "%c/jobs/of/the/town/%d", "zz"[i%2]-byte(min(i, 1)), i) },
		"zeros at an end": func(i int) []byte { return append(fmt.Appendf(nil, "%d", i/50), make([]byte, i%50)...) },
		"three bytes":     func(i int) []byte { return []byte{byte(i >> 16), byte(i >> 8), byte(i)} },
	} {
		for _, even := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/%v", name, even), func(t *testing.T) {
				entries := map[string]string{}
				for i := range 3000 {
					valueBytes := 40
					if !even {
						valueBytes = r.IntN(90)
					}
					entries[string(key(i))] = string(bytes.Repeat([]byte{byte(i)}, valueBytes))
				}
				requireTable(t, entries)
			})
		}
	}
}

// TestBlocksDoNotCrossPages: blocks that almost fill a page each lie in one, except the
// first few, with zeros between them. Smaller blocks are barely padded.
func TestBlocksDoNotCrossPages(t *testing.T) {
	for name, c := range map[string]struct {
		keyBytes, valueBytes, perBlock int
		padded                         bool
	}{
		"8 and 96":    {8, 96, 39, true},
		"16 and 8":    {16, 8, 169, false}, // 4,076 bytes with the header
		"40 and 200":  {40, 200, 16, false},
		"16 and 1024": {16, 1024, 3, false},
	} {
		t.Run(name, func(t *testing.T) {
			env := testEnv()
			w, err := Create(env, "table", "spool", 1, false)
			require.NoError(t, err)
			value := bytes.Repeat([]byte("v"), c.valueBytes)
			const blocks = 50
			for i := range blocks * c.perBlock {
				require.NoError(t, w.Add([]kv.Entry{{Key: fmt.Appendf(nil, "%0*d", c.keyBytes, i), Value: value}}, false))
			}
			facts, err := w.Finish(1, blocks)
			require.NoError(t, err)
			r, err := openReader(env, "table", facts, vfs.AdviseRandom)
			require.NoError(t, err)
			defer r.close()
			require.Equal(t, blocks, r.blocks)
			padding := 0
			for i := range blocks {
				start, end := r.blockRange(i)
				b, err := r.block(i)
				require.NoError(t, err)
				padding += int(end-start) - len(b.data)
				if last := start + uint64(len(b.data)) - 1; c.padded && i > 3 {
					require.Equal(t, start/pageBytes, last/pageBytes, "block %d", i)
				}
			}
			require.LessOrEqual(t, padding, int(facts.FileBytes/32))
			if !c.padded {
				return
			}
			_, end := r.blockRange(blocks - 2)
			whole, err := vfs.ReadFile(env.FS, r.Path)
			require.NoError(t, err)
			whole[end-1] = 1
			require.NoError(t, vfs.WriteFileAtomic(env.FS, r.Path, whole))
			damaged, err := openReader(env, "table", facts, vfs.AdviseRandom)
			require.NoError(t, err)
			defer damaged.close()
			_, err = damaged.block(blocks - 2)
			require.ErrorIs(t, err, ErrCorrupt)
			_, err = damaged.block(blocks - 3)
			require.NoError(t, err)
		})
	}
}

// TestVerifyCached: all blocks are verified and have tags, damage is found, and an error of step
// ends it.
func TestVerifyCached(t *testing.T) {
	var entries []kv.Entry
	for i := range 100_000 {
		entries = append(entries, kv.Entry{Key: fmt.Appendf(nil, "%08d", i), Value: fmt.Appendf(nil, "%096d", i)})
	}
	env := testEnv()
	r := writeEntries(t, env, entries)
	defer r.Unref()
	r.AddTags()
	steps, stop := 0, errors.New("stop")
	require.ErrorIs(t, r.VerifyCached(func() error {
		if steps++; steps == 2 {
			return stop
		}
		return nil
	}), stop)
	require.Equal(t, 2, steps)
	require.False(t, r.verified.has(r.blocks-1))
	require.NoError(t, r.VerifyCached(func() error { steps++; return nil }))
	require.EqualValues(t, 2+(r.Facts.FileBytes+verifyStepBytes-1)/verifyStepBytes, steps)
	for i := range r.blocks {
		require.True(t, r.verified.has(i))
		require.True(t, r.tags.Load().filled.has(i))
	}
	requireAnswers(t, r, entries[:1000])

	whole, err := vfs.ReadFile(env.FS, r.Path)
	require.NoError(t, err)
	whole[len(whole)/2] ^= 1
	require.NoError(t, vfs.WriteFileAtomic(env.FS, r.Path, whole))
	damaged, err := openReader(env, r.Path, r.Facts, vfs.AdviseRandom)
	require.NoError(t, err)
	defer damaged.close()
	require.ErrorIs(t, damaged.VerifyCached(func() error { return nil }), ErrCorrupt)
}

func requireTable(t *testing.T, entries map[string]string) {
	env := testEnv()
	w, err := Create(env, "table", "spool", 1, false)
	require.NoError(t, err)
	var keys []string
	for key := range entries {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	for i, key := range keys {
		require.NoError(t, w.Add([]kv.Entry{{Key: []byte(key), Value: []byte(entries[key]), Tombstone: i%500 == 77 && entries[key] == ""}}, false))
	}
	facts, err := w.Finish(1, uint64(len(keys)))
	require.NoError(t, err)
	r, err := openReader(env, "table", facts, vfs.AdviseRandom)
	require.NoError(t, err)
	defer r.close()
	it := r.iterator()
	for i, key := range keys {
		e, found, err := r.search(r.findBlock([]byte(key)), []byte(key))
		require.NoError(t, err)
		require.True(t, found)
		require.Equal(t, entries[key], string(e.Value))

		require.True(t, it.SeekGE([]byte(key)))
		require.Equal(t, key, string(it.Current().Key))
		require.Equal(t, i > 0, it.SeekLT([]byte(key)))
		if i > 0 {
			require.Equal(t, keys[i-1], string(it.Current().Key))
		}
		above := key + "\x00"
		if _, covered := r.place([]byte(above)); covered && entries[above] == "" {
			_, found, err = r.search(r.findBlock([]byte(above)), []byte(above))
			require.NoError(t, err)
			_, there := entries[above]
			require.Equal(t, there, found)
		}
	}
}

// TestBlockOutOfOrder: a block with a valid checksum and unordered keys is detected.
func TestBlockOutOfOrder(t *testing.T) {
	for _, keyBytes := range []int{4, 8, 16} {
		for _, mixed := range []bool{false, true} {
			keys := []int{1, 2, 3, 4, 5}
			verify := func() *FormatFault {
				var entries []kv.Entry
				for _, key := range keys {
					entries = append(entries, kv.Entry{Key: fmt.Appendf(nil, "%0*d", keyBytes, key), Value: []byte("value")})
				}
				b, fault := parseBlock(buildBlock(entries, mixed), 0)
				require.Nil(t, fault)
				return b.checkEntries()
			}
			require.Nil(t, verify())
			for i := range keys[1:] {
				keys[i], keys[i+1] = keys[i+1], keys[i]
				require.NotNil(t, verify(), "%d bytes, mixed %v, at %d", keyBytes, mixed, i)
				keys[i], keys[i+1] = keys[i+1], keys[i]
			}
			keys[4] = keys[3]
			require.NotNil(t, verify(), "a key twice")
		}
	}
}

// buildBlock builds an even or mixed block.
func buildBlock(entries []kv.Entry, mixed bool) []byte {
	var b blockBuilder
	b.begin(nil)
	for i := range entries {
		b.add(&entries[i])
	}
	if mixed {
		b.mix()
	}
	_, whole := b.finish(0)
	return whole
}
