package digests

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/internal/testseed"
	"docstore/internal/vfs"
)

// fewRows makes sorters use temporary files.
func fewRows(t *testing.T, n int) {
	before := sortedRows
	sortedRows = n
	t.Cleanup(func() { sortedRows = before })
}

// Rows come sorted by id, and rows of one id in the order in which they were added.
func TestSorter(t *testing.T) {
	random := testseed.Rand(t)
	for _, n := range []int{0, 1, 9, 10, 11, 500} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			fewRows(t, 10)
			fsys := vfs.NewMem()
			_, err := fsys.Create("x.0.tmp") // of a process that was killed
			require.NoError(t, err)
			s := sorter{fs: fsys, name: "x"}
			var want []row
			for i := range n {
				r := row{id: hash{byte(random.IntN(20))}, value: uint64(i), order: uint32(random.IntN(2))}
				want = append(want, r)
				require.NoError(t, s.add(r))
			}
			slices.SortStableFunc(want, func(a, b row) int { return slices.Compare(a.id[:], b.id[:]) })
			i := 0
			for r, err := range s.sorted() {
				require.NoError(t, err)
				require.Equal(t, [3]any{want[i].id, want[i].value, want[i].deleted()}, [3]any{r.id, r.value, r.deleted()})
				i++
			}
			require.Len(t, want, i)
			require.NoError(t, s.close())
			names, err := fsys.List(".")
			require.NoError(t, err)
			require.LessOrEqual(t, len(names), 1, "temporary files remain: %v", names)
		})
	}
}

// A failure of each operation on the temporary files is reported.
func TestSorterFails(t *testing.T) {
	fewRows(t, 4)
	for failing := int64(1); ; failing++ {
		failed, closing := false, false
		fsys := vfs.NewFault(vfs.NewMem(), func(op vfs.Op) error {
			if op.N == failing && !closing {
				failed = true
				return vfs.ErrNoSpace
			}
			return nil
		})
		u := NewUnique(fsys, "x")
		err := func() error {
			for i := range 20 {
				if err := u.Add(fmt.Append(nil, i), uint64(i)); err != nil {
					return err
				}
			}
			_, _, err := u.Twice()
			return err
		}()
		require.Equal(t, failed, err != nil, "operation %d: %v", failing, err)
		closing = true
		require.NoError(t, u.Close())
		if !failed {
			require.Greater(t, failing, int64(20))
			return
		}
	}
}

func TestUnique(t *testing.T) {
	random := testseed.Rand(t)
	fewRows(t, 7)
	for range 50 {
		u := NewUnique(vfs.NewMem(), "x")
		seen, first, found := map[string]bool{}, uint64(0), false
		for mark := range uint64(random.IntN(60)) {
			id := fmt.Sprint(random.IntN(500))
			if seen[id] && !found {
				first, found = mark, true
			}
			seen[id] = true
			require.NoError(t, u.Add([]byte(id), mark))
		}
		mark, twice, err := u.Twice()
		require.NoError(t, err)
		require.Equal(t, found, twice)
		require.Equal(t, first, mark)
		require.NoError(t, u.Close())
	}
}
