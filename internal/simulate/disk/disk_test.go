package disk_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/bits"
	"path"
	"sync"
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

// A power cut reports the files with a final name whose bytes were not synced.
func TestDurable(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		reported := 0
		for range 50 {
			d := newDisk(t)
			d.Durable("/data", "*.seg", func(names []string, err error) {
				require.NoError(t, err)
				require.Equal(t, []string{"/data/unsynced.seg"}, names)
				reported++
			})
			p := d.Boot()
			require.NoError(t, vfs.WriteFileAtomic(p, "/data/synced.seg", []byte("text")))
			for _, name := range []string{"/data/unsynced.seg", "/data/other"} {
				write(t, p, name, "text")
			}
			require.NoError(t, p.SyncDir("/data"))
			d.PowerCut()
		}
		require.Positive(t, reported)
	})
}

// CrashAtFile counts the operations of some files.
func TestCrashAtFile(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		d := newDisk(t)
		p := d.Boot()
		died := make(chan struct{})
		p.CrashAtFile("CURRENT*", 1, false, func() { close(died) })
		require.NoError(t, vfs.WriteFileAtomic(p, "/data/other", []byte("text")))
		require.Error(t, vfs.WriteFileAtomic(p, "/data/CURRENT", []byte("text")))
		<-died
	})
}

// Two processes replace files while one of them dies at each of its operations. Each file has the
// contents of a replacement that succeeded or of the one that was under way, whatever survived.
func TestCrashAtEachOperation(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		for _, power := range []bool{false, true} {
			for n := int64(1); n <= 30; n++ {
				d := newDisk(t)
				died := make(chan struct{})
				var acknowledged [2]int
				var running sync.WaitGroup
				for i := range acknowledged {
					p := d.Boot()
					if i == 0 {
						p.CrashAt(n, power, func() { close(died) })
					}
					running.Go(func() {
						for k := 1; k <= 20; k++ {
							if vfs.WriteFileAtomic(p, fmt.Sprint("/data/", i), bytes.Repeat([]byte{byte(k)}, 10_000)) != nil {
								return
							}
							acknowledged[i] = k
						}
					})
				}
				running.Wait()
				<-died
				require.Less(t, acknowledged[0], 20)
				require.Equal(t, power, acknowledged[1] < 20)
				for i, k := range acknowledged {
					content, err := vfs.ReadFile(d.Boot(), fmt.Sprint("/data/", i))
					if k == 0 && errors.Is(err, fs.ErrNotExist) {
						continue
					}
					require.NoError(t, err)
					require.Len(t, content, 10_000)
					require.Contains(t, []int{k, k + 1}, int(content[0]))
					require.Equal(t, bytes.Repeat(content[:1], 10_000), content)
				}
			}
		}
	})
}

// A write is torn at any byte by the death of its process, and the next process finds that part.
func TestCrashTearsWrites(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		d := newDisk(t)
		torn := 0
		for i := range 40 {
			name, text := fmt.Sprint("/data/", i), bytes.Repeat([]byte("x"), 1000)
			p := d.Boot()
			died := make(chan struct{})
			p.CrashAt(2, false, func() { close(died) })
			var found int64
			if i%2 == 0 {
				f, err := p.Create(name)
				require.NoError(t, err)
				n, err := f.Write(text)
				require.Error(t, err)
				_, err = f.Write(text)
				require.Error(t, err)
				<-died
				files, err := d.Find("/data", path.Base(name))
				require.NoError(t, err)
				require.Equal(t, []disk.File{{Name: name, Size: int64(n)}}, files)
				found = int64(n)
			} else {
				a, err := p.CreateAppendMap(name, 2000)
				require.NoError(t, err)
				_, err = a.Append(text)
				require.Error(t, err)
				<-died
				content, err := vfs.ReadFile(d.Boot(), name)
				require.NoError(t, err)
				require.Len(t, content, 2000)
				found = int64(bytes.Count(content, []byte("x")))
			}
			if found > 0 && found < 1000 {
				torn++
			}
		}
		require.Greater(t, torn, 30)
	})
}

func TestFull(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		d := newDisk(t)
		p := d.Boot()
		end, err := d.Full(2)
		require.NoError(t, err)
		f, err := p.Create("/data/a")
		require.NoError(t, err)
		n, err := f.Write([]byte("text"))
		require.ErrorIs(t, err, vfs.ErrNoSpace)
		require.Equal(t, 2, n)
		d.PowerCut()
		p = d.Boot()
		require.ErrorIs(t, vfs.WriteFileAtomic(p, "/data/b", []byte("text")), vfs.ErrNoSpace)
		end()
		require.NoError(t, vfs.WriteFileAtomic(p, "/data/b", []byte("text")))
	})
}

func TestNoInodes(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		d := newDisk(t)
		p := d.Boot()
		f, err := p.Create("/data/a")
		require.NoError(t, err)
		free := func() int64 {
			space, err := p.Free("/data")
			require.NoError(t, err)
			require.NotZero(t, space.Bytes)
			return space.Inodes
		}
		require.NotZero(t, free())
		end := d.NoInodes()
		require.Zero(t, free())
		for name, create := range map[string]func() error{
			"file":       func() error { _, err := p.Create("/data/b"); return err },
			"append map": func() error { _, err := p.CreateAppendMap("/data/b", 10); return err },
			"directory":  func() error { return p.MkdirAll("/data/b") },
			"lock":       func() error { _, err := p.Lock("/data/b", "p"); return err },
		} {
			require.ErrorIs(t, create(), vfs.ErrNoSpace, name)
		}
		_, err = f.Write([]byte("text"))
		require.NoError(t, err)
		require.NoError(t, p.MkdirAll("/data"))
		require.NoError(t, p.Link("/data/a", "/data/c"))
		end()
		require.NotZero(t, free())
		write(t, p, "/data/b", "text")
	})
}

func TestFailures(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		d := newDisk(t)
		p := d.Boot()
		write(t, p, "/data/a", "text")
		write(t, p, "/data/b", "text")

		end := d.FailReads(disk.Failure{Pattern: "a*"})
		_, err := vfs.ReadFile(p, "/data/a")
		require.ErrorIs(t, err, syscall.EIO)
		_, err = vfs.ReadFile(p, "/data/b")
		require.NoError(t, err)
		end()
		_, err = vfs.ReadFile(p, "/data/a")
		require.NoError(t, err)

		f, err := p.OpenAppend("/data/a")
		require.NoError(t, err)
		end = d.FailWrites(disk.Failure{Times: 1})
		_, err = f.Write([]byte("text"))
		require.ErrorIs(t, err, syscall.EIO)
		_, err = f.Write([]byte("more"))
		require.NoError(t, err)
		end()

		end = d.FailRemovals(disk.Failure{})
		require.ErrorIs(t, p.Rename("/data/a", "/data/c"), syscall.EIO)
		require.ErrorIs(t, p.Remove("/data/a"), syscall.EIO)
		require.ErrorIs(t, p.RemoveAll("/data/a"), syscall.EIO)
		end()

		end = d.FailSyncs(disk.Failure{})
		require.ErrorIs(t, f.Sync(), syscall.EIO)
		require.ErrorIs(t, p.SyncDir("/data"), syscall.EIO)
		end()
		require.Error(t, f.Sync(), "a failed sync is final")
		require.NoError(t, f.Close())

		end = d.FailReads(disk.Failure{Probability: 0.5})
		failed := 0
		for range 100 {
			if _, err := vfs.ReadFile(p, "/data/b"); err != nil {
				failed++
			}
		}
		end()
		require.InDelta(t, 50, failed, 40)
	})
}

// A sync that failed has lost the pages: the next sync succeeds, and they are gone after a power
// cut.
func TestFailedSyncLosesPages(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		lost := 0
		for range 30 {
			d := newDisk(t)
			p := d.Boot()
			write(t, p, "/data/a", "text")
			require.NoError(t, p.SyncDir("/data"))
			end := d.FailSyncs(disk.Failure{Times: 1})
			f, err := p.OpenAppend("/data/a")
			require.NoError(t, err)
			require.ErrorIs(t, f.Sync(), syscall.EIO)
			end()
			again, err := p.OpenAppend("/data/a")
			require.NoError(t, err)
			require.NoError(t, again.Sync())
			d.PowerCut()
			content, err := vfs.ReadFile(d.Boot(), "/data/a")
			require.NoError(t, err)
			if string(content) != "text" {
				lost++
			}
		}
		require.Positive(t, lost)
	})
}

func TestTimes(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		took := func(operation func()) time.Duration {
			start := time.Now()
			operation()
			return time.Since(start)
		}
		d := newDisk(t)
		p := d.Boot()
		write(t, p, "/data/a", "text")
		f, err := p.OpenAppend("/data/a")
		require.NoError(t, err)
		m, err := p.CreateAppendMap("/data/log", 1000)
		require.NoError(t, err)
		read := func() { _, _ = f.ReadAt(make([]byte, 1), 0) }
		require.Less(t, took(read), 200*time.Microsecond)
		require.NotEqual(t, took(read), took(read))
		require.Greater(t, took(func() { _ = f.Sync() }), 200*time.Microsecond)
		require.Zero(t, took(func() { _, _ = m.Append([]byte("text")) }))

		end := d.Slow(time.Second)
		require.Greater(t, took(read), time.Second)
		end()
		end, later := d.Stall(), d.Stall()
		time.AfterFunc(time.Minute, end)
		time.AfterFunc(time.Hour, later)
		require.Greater(t, took(read), time.Hour)
		end = d.Stall()
		killed := make(chan struct{})
		time.AfterFunc(time.Minute, func() {
			p.Kill()
			close(killed)
		})
		require.Less(t, took(read), time.Hour, "the process was killed")
		<-killed
		end()
	})
}

func TestFlipBit(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		d := newDisk(t)
		p := d.Boot()
		for _, name := range []string{"a", "b"} {
			write(t, p, "/data/"+name, "text")
		}
		write(t, p, "/data/a-empty", "")
		f, err := p.Open("/data/a")
		require.NoError(t, err)
		mapped, err := f.Map(4)
		require.NoError(t, err)
		name, err := d.FlipBit("/", "a*")
		require.NoError(t, err)
		require.Equal(t, "/data/a", name)
		content, err := vfs.ReadFile(p, "/data/a")
		require.NoError(t, err)
		different := 0
		for i, b := range []byte("text") {
			different += bits.OnesCount8(b ^ content[i])
		}
		require.Equal(t, 1, different)
		require.Equal(t, content, mapped.Bytes())
		name, err = d.FlipBit("/", "none")
		require.NoError(t, err)
		require.Empty(t, name)
	})
}

func TestFind(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		d := newDisk(t)
		p := d.Boot()
		require.NoError(t, p.MkdirAll("/data/below"))
		write(t, p, "/data/a.tmp", "a secret")
		write(t, p, "/data/below/b.tmp", "text")
		write(t, p, "/data/c", "secret")
		files, err := d.Find("/data", "*.tmp")
		require.NoError(t, err)
		require.Equal(t, []disk.File{{Name: "/data/a.tmp", Size: 8}, {Name: "/data/below/b.tmp", Size: 4}}, files)
		names, err := d.Containing("/", []byte("secret"))
		require.NoError(t, err)
		require.Equal(t, []string{"/data/a.tmp", "/data/c"}, names)
		files, err = d.Find("/none", "*")
		require.NoError(t, err)
		require.Empty(t, files)
	})
}
