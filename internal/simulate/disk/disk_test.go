package disk_test

import (
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/internal/simulate/chance"
	"docstore/internal/simulate/disk"
	"docstore/internal/testseed"
	"docstore/internal/vfs"
	"docstore/internal/virtualtime"
)

func newDisk(t *testing.T) *disk.Disk {
	t.Helper()
	d := disk.New(chance.New(testseed.Seed(t)), "server-1")
	require.NoError(t, vfs.MakeDir(d.Files(), "/data"))
	return d
}

func write(t *testing.T, fsys vfs.FS, name, text string) {
	t.Helper()
	f, err := fsys.Create(name)
	require.NoError(t, err)
	_, err = f.Write([]byte(text))
	require.NoError(t, err)
	require.NoError(t, f.Close())
}

func TestKillKeepsFilesAndFreesLocks(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		d := newDisk(t)
		p, other := d.Boot(), d.Boot()
		write(t, p, "/data/a", "text")
		_, err := p.Lock("/data/LOCK", "p")
		require.NoError(t, err)
		_, err = other.Lock("/data/LOCK", "other")
		require.ErrorIs(t, err, vfs.ErrLocked)
		p.Kill()
		_, err = p.Create("/data/b")
		require.Error(t, err)
		content, err := vfs.ReadFile(other, "/data/a")
		require.NoError(t, err)
		require.Equal(t, "text", string(content))
		held, err := other.Lock("/data/LOCK", "other")
		require.NoError(t, err)
		require.NoError(t, held.Close())
	})
}

func TestPowerCutKeepsWhatWasSynced(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		lost := 0
		for range 50 {
			d := newDisk(t)
			p := d.Boot()
			require.NoError(t, vfs.WriteFileAtomic(p, "/data/synced", []byte("text")))
			write(t, p, "/data/unsynced", "text")
			d.PowerCut()
			next := d.Boot()
			content, err := vfs.ReadFile(next, "/data/synced")
			require.NoError(t, err)
			require.Equal(t, "text", string(content))
			if content, err = vfs.ReadFile(next, "/data/unsynced"); err != nil || string(content) != "text" {
				lost++
			}
			_, err = p.List("/data")
			require.Error(t, err)
		}
		require.Positive(t, lost)
	})
}

func TestCrashAt(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		for _, power := range []bool{false, true} {
			d := newDisk(t)
			p := d.Boot()
			died := make(chan struct{})
			p.CrashAt(3, power, func() { close(died) })
			write(t, p, "/data/a", "text") // two operations that write
			f, err := p.OpenAppend("/data/a")
			require.NoError(t, err)
			n, err := f.Write([]byte("more"))
			require.Error(t, err)
			require.Less(t, n, 4)
			<-died
			_, err = p.Open("/data/a")
			require.Error(t, err)
			files, err := d.Find("/data", "*")
			require.NoError(t, err)
			if !power {
				require.Equal(t, []string{"/data/a"}, files)
			}
		}
	})
}

func TestFaults(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		d := newDisk(t)
		p := d.Boot()
		write(t, p, "/data/a", "text")

		end, err := d.Full(2)
		require.NoError(t, err)
		f, err := p.Create("/data/b")
		require.NoError(t, err)
		_, err = f.Write([]byte("text"))
		require.ErrorIs(t, err, vfs.ErrNoSpace)
		end()
		_, err = f.Write([]byte("text"))
		require.NoError(t, err)

		end = d.NoInodes()
		_, err = p.Create("/data/c")
		require.ErrorIs(t, err, syscall.ENOSPC)
		_, err = f.Write([]byte("text"))
		require.NoError(t, err)
		end()

		end = d.FailReads("a*")
		_, err = vfs.ReadFile(p, "/data/a")
		require.ErrorIs(t, err, syscall.EIO)
		_, err = vfs.ReadFile(p, "/data/b")
		require.NoError(t, err)
		end()

		end = d.FailWrites(1)
		require.ErrorIs(t, f.Sync(), syscall.EIO)
		end()
		write(t, p, "/data/c", "text")

		start := time.Now()
		end = d.Slow(time.Second)
		_, err = vfs.ReadFile(p, "/data/a")
		require.NoError(t, err)
		require.Greater(t, time.Since(start), time.Second)
		end()

		end = d.Stall()
		time.AfterFunc(time.Hour, end)
		start = time.Now()
		_, err = vfs.ReadFile(p, "/data/a")
		require.NoError(t, err)
		require.GreaterOrEqual(t, time.Since(start), time.Hour-time.Minute)

		name, err := d.FlipBit("/", "a")
		require.NoError(t, err)
		require.Equal(t, "/data/a", name)
		content, err := vfs.ReadFile(p, "/data/a")
		require.NoError(t, err)
		require.NotEqual(t, "text", string(content))
		require.NoError(t, f.Close())
	})
}
