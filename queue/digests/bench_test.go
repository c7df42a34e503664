package digests

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/internal/vfs"
)

// BenchmarkWrite replaces a table of a million rows, of which 1 % change.
func BenchmarkWrite(b *testing.B) {
	const count = 1_000_000
	rows := make([]row, count)
	for i := range rows {
		rows[i] = row{id: hashOf([]byte{byte(i), byte(i >> 8), byte(i >> 16)}), value: uint64(i)}
	}
	slices.SortFunc(rows, row.compare)
	table := Table{options: Options{Now: time.Now}}
	for i := range rows {
		table.rows = rows[i].append(table.rows)
	}
	file, err := vfs.OS.Create(b.TempDir() + "/rows")
	require.NoError(b, err)
	defer file.Close()
	b.SetBytes(count * rowBytes)
	for b.Loop() {
		var s sorter
		for i := 0; i < count; i += 100 {
			require.NoError(b, s.add(rows[i]))
		}
		require.NoError(b, table.writeTo(file, &s, nil))
	}
}
