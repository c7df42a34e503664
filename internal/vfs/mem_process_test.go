package vfs

import (
	"io/fs"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestKilledProcess checks that a killed process changes nothing any more, that its locks and the
// bytes of its removed files are free, and that another process continues.
func TestKilledProcess(t *testing.T) {
	m := NewMem()
	free, err := m.Free("/")
	require.NoError(t, err)
	killed, other := m.Process(), m.Process()
	f, err := killed.Create("/file")
	require.NoError(t, err)
	_, err = f.Write([]byte("content"))
	require.NoError(t, err)
	a, err := killed.CreateAppendMap("/log", 100)
	require.NoError(t, err)
	_, err = a.Append([]byte("record"))
	require.NoError(t, err)
	lock, err := killed.Lock("/LOCK", "killed")
	require.NoError(t, err)
	read, err := other.Open("/file")
	require.NoError(t, err)
	held, err := other.Lock("/OTHER", "other")
	require.NoError(t, err)
	require.NoError(t, m.Remove("/file"))
	require.Equal(t, []string{"/LOCK", "/file", "/log"}, killed.OpenFiles())

	killed.Kill()
	require.Empty(t, killed.OpenFiles())
	_, err = f.Write([]byte("more"))
	require.ErrorIs(t, err, fs.ErrClosed)
	require.ErrorIs(t, f.Sync(), fs.ErrClosed)
	_, err = a.Append([]byte("more"))
	require.ErrorIs(t, err, fs.ErrClosed)
	require.NoError(t, a.Close())
	require.NoError(t, f.Close())
	require.NoError(t, lock.Close())
	for name, want := range map[string]string{"/log": "record" + string(make([]byte, 94)), "/LOCK": "killed"} {
		content, err := ReadFile(other, name)
		require.NoError(t, err)
		require.Equal(t, want, string(content), name)
	}

	content := make([]byte, 7)
	_, err = read.ReadAt(content, 0)
	require.NoError(t, err)
	require.Equal(t, "content", string(content))
	_, err = killed.Mem.Lock("/OTHER", "third")
	require.ErrorIs(t, err, ErrLocked)
	again, err := other.Lock("/LOCK", "other")
	require.NoError(t, err)
	require.NoError(t, again.Close())
	require.NoError(t, held.Close())
	require.NoError(t, read.Close())
	require.NoError(t, m.Remove("/log"))
	left, err := m.Free("/")
	require.NoError(t, err)
	require.Equal(t, free, left)
}

// TestFlipBit checks that a flipped bit is read by all ways, before and after a power cut, also
// in bytes that were never written.
func TestFlipBit(t *testing.T) {
	for _, offset := range []int64{0, 5, 6, 99} {
		m := NewMem()
		a, err := m.CreateAppendMap("/log", 100)
		require.NoError(t, err)
		_, err = a.Append([]byte("record"))
		require.NoError(t, err)
		require.NoError(t, a.Sync(3))
		require.NoError(t, m.SyncDir("/"))
		want, err := ReadFile(m, "/log")
		require.NoError(t, err)
		f, err := m.Open("/log")
		require.NoError(t, err)
		mapped, err := f.Map(100)
		require.NoError(t, err)
		short, err := f.Map(1)
		require.NoError(t, err)
		closed, err := f.Map(100)
		require.NoError(t, err)
		require.NoError(t, closed.Close())

		var reading sync.WaitGroup
		sum := byte(0)
		reading.Go(func() { // no data race
			for _, b := range mapped.Bytes() {
				sum += b
			}
		})
		require.NoError(t, m.FlipBit("/log", offset, 6))
		reading.Wait()
		want[offset] ^= 1 << 6
		content, err := ReadFile(m, "/log")
		require.NoError(t, err)
		require.Equal(t, want, content)
		require.Equal(t, want, mapped.Bytes())
		require.Equal(t, want[:1], short.Bytes())
		content, err = ReadFile(m.ProcessCrashClone(), "/log")
		require.NoError(t, err)
		require.Equal(t, want, content)
		content, err = ReadFile(m.CrashClone(KeepSynced), "/log")
		require.NoError(t, err)
		synced := make([]byte, 100)
		copy(synced, "rec")
		synced[offset] ^= 1 << 6
		require.Equal(t, synced, content)
	}
	m := NewMem()
	require.ErrorIs(t, m.FlipBit("/none", 0, 0), fs.ErrNotExist)
	require.ErrorIs(t, m.FlipBit("/", 0, 0), fs.ErrInvalid)
}
