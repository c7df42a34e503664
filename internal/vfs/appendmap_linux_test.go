package vfs

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// newMappedAppend creates an append map that is a real mapping.
func newMappedAppend(t testing.TB, capacity int64) (m *mappedAppend, name string) {
	t.Helper()
	name = filepath.Join(t.TempDir(), "log")
	created, err := OS.CreateAppendMap(name, capacity)
	require.NoError(t, err)
	t.Cleanup(func() { created.Close() })
	m, ok := created.(*mappedAppend)
	if !ok {
		t.Skip("this file system cannot allocate")
	}
	return m, name
}

func TestAppendMapIsAllocated(t *testing.T) {
	m, name := newMappedAppend(t, 1<<20)
	info, err := OS.Stat(name)
	require.NoError(t, err)
	assert.EqualValues(t, 1<<20, info.Size)
	_, err = m.Append([]byte("abc"))
	require.NoError(t, err)
	require.NoError(t, m.Close())
	info, err = OS.Stat(name)
	require.NoError(t, err)
	assert.EqualValues(t, 3, info.Size)
}

func TestTruncationOfMappedAppendIsFinal(t *testing.T) {
	m, name := newMappedAppend(t, 1<<20)
	_, err := m.Append([]byte("abc"))
	require.NoError(t, err)
	require.NoError(t, os.Truncate(name, 0))
	_, err = m.Append([]byte("def"))
	assert.ErrorIs(t, err, ErrFault)
	assert.EqualValues(t, 3, m.Size())
	require.NoError(t, os.Truncate(name, 1<<20))
	_, err = m.Append([]byte("def"))
	assert.ErrorIs(t, err, ErrFault, "the first failure is final")
	assert.ErrorIs(t, m.Sync(3), ErrFault)
	assert.NoError(t, m.Close())
}

func TestAppendAllocatesNothing(t *testing.T) {
	m, _ := newMappedAppend(t, 1<<20)
	record := make([]byte, 100)
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		if _, err := m.Append(record); err != nil {
			t.Error(err)
		}
	}))
}

func BenchmarkAppendMap(b *testing.B) {
	record := make([]byte, 100)
	for name, create := range map[string]func(name string, capacity int64) (AppendMap, error){
		"kind=mapped":   OS.CreateAppendMap,
		"kind=buffered": newBufferedAppend,
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(record)))
			path := filepath.Join(b.TempDir(), "log")
			m, err := create(path, 64<<20)
			require.NoError(b, err)
			for b.Loop() {
				_, err := m.Append(record)
				if err == nil {
					continue
				}
				require.ErrorIs(b, err, ErrFull)
				b.StopTimer()
				require.NoError(b, m.Close())
				require.NoError(b, os.Remove(path))
				m, err = create(path, 64<<20)
				require.NoError(b, err)
				b.StartTimer()
			}
			require.NoError(b, m.Close())
		})
	}
}
