package memtable

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/internal/testseed"
	"docstore/lsm/internal/kv"
)

func TestMemtableKeepsEveryVersionInOrder(t *testing.T) {
	r := testseed.Rand(t)
	m := New(nil, 1<<20, 0, Account{})
	type write struct {
		value     string
		tombstone bool
	}
	history := []map[string]write{{}}
	for sequence := uint64(1); sequence <= 500; sequence++ {
		// Short keys, zeros and a common prefix: errors of a comparison by prefix.
		key := bytes.Repeat([]byte{0, 1, 'p'}[r.IntN(3):][:1], r.IntN(12))
		w := write{value: fmt.Sprint(sequence), tombstone: r.IntN(4) == 0}
		if w.tombstone {
			w.value = ""
		}
		m.Add(Hash(key), key, Version{sequence, w.tombstone, []byte(w.value)})
		state := maps.Clone(history[sequence-1])
		state[string(key)] = w
		history = append(history, state)
	}
	for sequence, state := range history {
		keys := slices.Sorted(maps.Keys(state))
		it := kv.NewMergingIterator(m.Iterators(uint64(sequence)))
		at := 0
		for ok := it.First(); ok; ok = it.Next() {
			require.Equal(t, keys[at], string(it.Current().Key))
			require.Equal(t, state[keys[at]], write{string(it.Current().Value), it.Current().Tombstone})
			v, found := m.Get(Hash([]byte(keys[at])), []byte(keys[at]), uint64(sequence))
			require.True(t, found)
			require.Equal(t, state[keys[at]], write{string(v.Value), v.Tombstone})
			at++
		}
		require.Equal(t, len(keys), at)
		for ok := it.Last(); ok; ok = it.Next() {
			at--
			require.Equal(t, keys[at], string(it.Current().Key))
		}
		require.Zero(t, at)
	}
	require.EqualValues(t, 1, m.First())
	require.LessOrEqual(t, m.Used(), m.Bytes())
}

func TestMemtableReadsDuringWrites(t *testing.T) {
	m := New(nil, 1<<20, 0, Account{})
	var readers sync.WaitGroup
	stop := make(chan struct{})
	var visible atomic.Uint64
	for range 2 {
		readers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				through := visible.Load()
				count, last := uint64(0), []byte(nil)
				it := kv.NewMergingIterator(m.Iterators(through))
				for ok := it.First(); ok; ok = it.Next() {
					if count > 0 && bytes.Compare(last, it.Current().Key) >= 0 {
						t.Errorf("%q after %q", it.Current().Key, last)
						return
					}
					last = it.Current().Key
					count++
				}
				if count != through {
					t.Errorf("%d keys at %d", count, through)
					return
				}
			}
		})
	}
	r := testseed.Rand(t)
	for i, n := range r.Perm(3000) {
		key := fmt.Appendf(nil, "%d", n)
		m.Add(Hash(key), key, Version{Sequence: uint64(i + 1), Value: make([]byte, n%300)})
		visible.Store(uint64(i + 1))
	}
	close(stop)
	readers.Wait()
}
