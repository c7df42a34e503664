package vfs

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// testFS is an FS and a directory of it for one test case.
type testFS struct {
	FS
	dir string
}

func (r testFS) path(elements ...string) string {
	return filepath.Join(append([]string{r.dir}, elements...)...)
}

// write creates a file.
func (r testFS) write(t *testing.T, name, content string) {
	t.Helper()
	f, err := r.Create(r.path(name))
	require.NoError(t, err)
	_, err = f.Write([]byte(content))
	require.NoError(t, err)
	require.NoError(t, f.Close())
}

func (r testFS) read(t *testing.T, name string) string {
	t.Helper()
	data, err := ReadFile(r, r.path(name))
	require.NoError(t, err)
	return string(data)
}

func (r testFS) list(t *testing.T) []string {
	t.Helper()
	names, err := r.List(r.dir)
	require.NoError(t, err)
	return names
}

func allow(Op) error { return nil }

// forEachFS runs a test on every implementation.
func forEachFS(t *testing.T, test func(t *testing.T, r testFS)) {
	for name, fsys := range map[string]func() FS{
		"os":       func() FS { return OS },
		"mem":      func() FS { return NewMem() },
		"process":  func() FS { return NewMem().Process() },
		"faultOS":  func() FS { return NewFault(OS, allow) },
		"faultMem": func() FS { return NewFault(NewMem(), allow) },
	} {
		t.Run(name, func(t *testing.T) {
			r := testFS{FS: fsys(), dir: t.TempDir()}
			require.NoError(t, r.MkdirAll(r.dir))
			test(t, r)
		})
	}
}

func TestConformance(t *testing.T) {
	for name, test := range map[string]func(t *testing.T, r testFS){
		"CreateExisting":           testCreateExisting,
		"MissingNames":             testMissingNames,
		"FileAsDirectory":          testFileAsDirectory,
		"DirectoryAsFile":          testDirectoryAsFile,
		"AppendAndRead":            testAppendAndRead,
		"ReadPastEnd":              testReadPastEnd,
		"OpenIsForReading":         testOpenIsForReading,
		"OpenAppendGoesOn":         testOpenAppendGoesOn,
		"Truncate":                 testTruncate,
		"WriteAt":                  testWriteAt,
		"Rename":                   testRename,
		"RenameOverDirectory":      testRenameOverDirectory,
		"RenameDirectory":          testRenameDirectory,
		"RenameHardLinkKeepsBoth":  testRenameHardLinkKeepsBoth,
		"Link":                     testLink,
		"Remove":                   testRemove,
		"RemoveAll":                testRemoveAll,
		"ListIsSorted":             testListIsSorted,
		"OpenFileOutlivesItsName":  testOpenFileOutlivesItsName,
		"IdentityFollowsTheFile":   testIdentityFollowsTheFile,
		"Closed":                   testClosed,
		"Map":                      testMap,
		"MapEmpty":                 testMapEmpty,
		"MapTooMuch":               testMapTooMuch,
		"Lock":                     testLock,
		"Free":                     testFree,
		"SyncDir":                  testSyncDir,
		"AppendMap":                testAppendMap,
		"AppendMapFull":            testAppendMapFull,
		"AppendMapBadArguments":    testAppendMapBadArguments,
		"AppendMapClosed":          testAppendMapClosed,
		"AppendMapReadBesideIt":    testAppendMapReadBesideIt,
		"AppendMapSyncBesideIt":    testAppendMapSyncBesideIt,
		"ReadersBesideTheWriter":   testReadersBesideTheWriter,
		"AtomicFile":               testAtomicFile,
		"AtomicFileIgnoresOldTemp": testAtomicFileIgnoresOldTemp,
	} {
		t.Run(name, func(t *testing.T) { forEachFS(t, test) })
	}
}

func testCreateExisting(t *testing.T, r testFS) {
	r.write(t, "a", "old")
	_, err := r.Create(r.path("a"))
	assert.ErrorIs(t, err, fs.ErrExist)
	_, err = r.CreateAppendMap(r.path("a"), 1)
	assert.ErrorIs(t, err, fs.ErrExist)
	assert.Equal(t, "old", r.read(t, "a"))
}

func testMissingNames(t *testing.T, r testFS) {
	missing, below := r.path("missing"), r.path("missing", "below")
	for name, call := range map[string]func() error{
		"Create":          func() error { _, err := r.Create(below); return err },
		"Open":            func() error { _, err := r.Open(missing); return err },
		"OpenAppend":      func() error { _, err := r.OpenAppend(missing); return err },
		"CreateAppendMap": func() error { _, err := r.CreateAppendMap(below, 1); return err },
		"Remove":          func() error { return r.Remove(missing) },
		"Rename":          func() error { return r.Rename(missing, r.path("b")) },
		"Rename below":    func() error { return r.Rename(r.dir, below) },
		"Link":            func() error { return r.Link(missing, r.path("b")) },
		"List":            func() error { _, err := r.List(missing); return err },
		"Stat":            func() error { _, err := r.Stat(missing); return err },
		"SyncDir":         func() error { return r.SyncDir(missing) },
		"Lock":            func() error { _, err := r.Lock(below, "me"); return err },
		"Free":            func() error { _, err := r.Free(missing); return err },
	} {
		assert.ErrorIs(t, call(), fs.ErrNotExist, name)
	}
	assert.NoError(t, r.RemoveAll(missing))
	assert.NoError(t, r.RemoveAll(below))
	assert.Empty(t, r.list(t))
}

func testFileAsDirectory(t *testing.T, r testFS) {
	r.write(t, "a", "")
	_, err := r.Create(r.path("a", "b"))
	assert.Error(t, err)
	_, err = r.List(r.path("a"))
	assert.Error(t, err)
	assert.Error(t, r.MkdirAll(r.path("a")))
	assert.Error(t, r.MkdirAll(r.path("a", "b")))
}

func testDirectoryAsFile(t *testing.T, r testFS) {
	_, err := r.OpenAppend(r.dir)
	assert.Error(t, err)
	_, err = r.Lock(r.dir, "me")
	assert.Error(t, err)
	assert.Error(t, r.Link(r.dir, r.path("a")))
}

func testAppendAndRead(t *testing.T, r testFS) {
	f, err := r.Create(r.path("a"))
	require.NoError(t, err)
	defer f.Close()
	for _, part := range []string{"one", "", "two"} {
		n, err := f.Write([]byte(part))
		require.NoError(t, err)
		assert.Equal(t, len(part), n)
	}
	require.NoError(t, f.SyncData())
	require.NoError(t, f.Sync())
	p := make([]byte, 3)
	n, err := f.ReadAt(p, 2)
	require.NoError(t, err)
	assert.Equal(t, "etw", string(p[:n]))
	_, err = f.Write([]byte("!")) // reading does not move the end
	require.NoError(t, err)
	assert.Equal(t, "onetwo!", r.read(t, "a"))
	info, err := f.Stat()
	require.NoError(t, err)
	assert.EqualValues(t, 7, info.Size)
	assert.False(t, info.Dir)
	assert.False(t, info.ModTime.IsZero())
}

func testReadPastEnd(t *testing.T, r testFS) {
	r.write(t, "a", "abc")
	f, err := r.Open(r.path("a"))
	require.NoError(t, err)
	defer f.Close()
	p := make([]byte, 5)
	n, err := f.ReadAt(p, 1)
	assert.Equal(t, io.EOF, err)
	assert.Equal(t, "bc", string(p[:n]))
	n, err = f.ReadAt(p, 9)
	assert.Equal(t, io.EOF, err)
	assert.Zero(t, n)
	_, err = f.ReadAt(nil, 9)
	assert.NoError(t, err)
	_, err = f.ReadAt(p, -1)
	assert.Error(t, err)
}

func testOpenIsForReading(t *testing.T, r testFS) {
	r.write(t, "a", "abc")
	f, err := r.Open(r.path("a"))
	require.NoError(t, err)
	defer f.Close()
	_, err = f.Write([]byte("d"))
	assert.Error(t, err)
	assert.Error(t, f.Truncate(0))
	assert.Equal(t, "abc", r.read(t, "a"))
}

func testOpenAppendGoesOn(t *testing.T, r testFS) {
	r.write(t, "a", "abc")
	f, err := r.OpenAppend(r.path("a"))
	require.NoError(t, err)
	_, err = f.Write([]byte("def"))
	require.NoError(t, err)
	require.NoError(t, f.Close())
	assert.Equal(t, "abcdef", r.read(t, "a"))
}

func testTruncate(t *testing.T, r testFS) {
	r.write(t, "a", "abcdef")
	f, err := r.OpenAppend(r.path("a"))
	require.NoError(t, err)
	defer f.Close()
	assert.Error(t, f.Truncate(7))
	assert.Error(t, f.Truncate(-1))
	assert.Equal(t, "abcdef", r.read(t, "a"))
	require.NoError(t, f.Truncate(2))
	assert.Equal(t, "ab", r.read(t, "a"))
	_, err = f.Write([]byte("X"))
	require.NoError(t, err)
	assert.Equal(t, "abX", r.read(t, "a"))
}

func testWriteAt(t *testing.T, r testFS) {
	r.write(t, "a", "abcdef")
	f, err := r.OpenAppend(r.path("a"))
	require.NoError(t, err)
	defer f.Close()
	n, err := f.WriteAt([]byte("XY"), 1)
	require.NoError(t, err)
	assert.Equal(t, 2, n)
	_, err = f.Write([]byte("g")) // it does not move the end
	require.NoError(t, err)
	_, err = f.WriteAt([]byte("Z"), 6)
	require.NoError(t, err)
	for _, offset := range []int64{-1, 6, 7, 8} { // no byte of these is written
		_, err = f.WriteAt([]byte("--"), offset)
		assert.Error(t, err)
	}
	require.NoError(t, f.Sync())
	assert.Equal(t, "aXYdefZ", r.read(t, "a"))
	reading, err := r.Open(r.path("a"))
	require.NoError(t, err)
	defer reading.Close()
	_, err = reading.WriteAt([]byte("-"), 0)
	assert.Error(t, err)
}

func testRename(t *testing.T, r testFS) {
	r.write(t, "a", "new")
	r.write(t, "b", "old")
	require.NoError(t, r.Rename(r.path("a"), r.path("b")))
	assert.Equal(t, "new", r.read(t, "b"))
	assert.Equal(t, []string{"b"}, r.list(t))
	require.NoError(t, r.Rename(r.path("b"), r.path("b")))
	assert.Equal(t, []string{"b"}, r.list(t))
}

func testRenameOverDirectory(t *testing.T, r testFS) {
	r.write(t, "a", "file")
	require.NoError(t, r.MkdirAll(r.path("dir")))
	require.NoError(t, r.MkdirAll(r.path("other")))
	assert.ErrorIs(t, r.Rename(r.path("a"), r.path("dir")), fs.ErrExist)
	assert.ErrorIs(t, r.Rename(r.path("other"), r.path("dir")), fs.ErrExist)
	assert.Error(t, r.Rename(r.path("dir"), r.path("a")))
	assert.Error(t, r.Rename(r.path("dir"), r.path("dir", "below")))
	assert.Equal(t, []string{"a", "dir", "other"}, r.list(t))
}

func testRenameDirectory(t *testing.T, r testFS) {
	require.NoError(t, r.MkdirAll(r.path("dir.tmp", "below")))
	r.write(t, "dir.tmp/below/a", "content")
	require.NoError(t, r.Rename(r.path("dir.tmp"), r.path("dir")))
	assert.Equal(t, "content", r.read(t, "dir/below/a"))
	assert.Equal(t, []string{"dir"}, r.list(t))
}

func testRenameHardLinkKeepsBoth(t *testing.T, r testFS) {
	r.write(t, "a", "content")
	require.NoError(t, r.Link(r.path("a"), r.path("b")))
	require.NoError(t, r.Rename(r.path("a"), r.path("b")))
	assert.Equal(t, []string{"a", "b"}, r.list(t))
}

func testLink(t *testing.T, r testFS) {
	r.write(t, "a", "content")
	require.NoError(t, r.Link(r.path("a"), r.path("b")))
	assert.ErrorIs(t, r.Link(r.path("a"), r.path("b")), fs.ErrExist)
	a, err := r.Stat(r.path("a"))
	require.NoError(t, err)
	b, err := r.Stat(r.path("b"))
	require.NoError(t, err)
	assert.Equal(t, a.ID, b.ID)
	require.NoError(t, r.Remove(r.path("a")))
	assert.Equal(t, "content", r.read(t, "b"))
}

func testRemove(t *testing.T, r testFS) {
	require.NoError(t, r.MkdirAll(r.path("dir")))
	r.write(t, "dir/a", "")
	assert.Error(t, r.Remove(r.path("dir")))
	require.NoError(t, r.Remove(r.path("dir", "a")))
	require.NoError(t, r.Remove(r.path("dir")))
	assert.Empty(t, r.list(t))
}

func testRemoveAll(t *testing.T, r testFS) {
	require.NoError(t, r.MkdirAll(r.path("dir", "below")))
	require.NoError(t, r.MkdirAll(r.path("dir", "below"))) // repeating is not an error
	r.write(t, "dir/below/a", "")
	r.write(t, "dir/b", "")
	require.NoError(t, r.RemoveAll(r.path("dir")))
	assert.Empty(t, r.list(t))
}

func testListIsSorted(t *testing.T, r testFS) {
	for _, name := range []string{"c", "a10", "b", "a9"} {
		r.write(t, name, "")
	}
	require.NoError(t, r.MkdirAll(r.path("a")))
	assert.Equal(t, []string{"a", "a10", "a9", "b", "c"}, r.list(t))
	info, err := r.Stat(r.path("a"))
	require.NoError(t, err)
	assert.True(t, info.Dir)
}

func testOpenFileOutlivesItsName(t *testing.T, r testFS) {
	r.write(t, "a", "abc")
	f, err := r.OpenAppend(r.path("a"))
	require.NoError(t, err)
	defer f.Close()
	require.NoError(t, r.Rename(r.path("a"), r.path("b")))
	_, err = f.Write([]byte("d"))
	require.NoError(t, err)
	assert.Equal(t, "abcd", r.read(t, "b"))
	require.NoError(t, r.Remove(r.path("b")))
	_, err = f.Write([]byte("e"))
	require.NoError(t, err)
	p := make([]byte, 5)
	_, err = f.ReadAt(p, 0)
	require.NoError(t, err)
	assert.Equal(t, "abcde", string(p))
}

func testIdentityFollowsTheFile(t *testing.T, r testFS) {
	r.write(t, "a", "one")
	r.write(t, "b", "two")
	f, err := r.Open(r.path("a"))
	require.NoError(t, err)
	defer f.Close()
	opened, err := f.Stat()
	require.NoError(t, err)
	require.NoError(t, r.Rename(r.path("a"), r.path("c")))
	renamed, err := r.Stat(r.path("c"))
	require.NoError(t, err)
	assert.Equal(t, opened.ID, renamed.ID)
	require.NoError(t, r.Rename(r.path("b"), r.path("c")))
	replaced, err := r.Stat(r.path("c"))
	require.NoError(t, err)
	assert.NotEqual(t, opened.ID, replaced.ID)
}

func testClosed(t *testing.T, r testFS) {
	r.write(t, "a", "abc")
	f, err := r.OpenAppend(r.path("a"))
	require.NoError(t, err)
	require.NoError(t, f.Close())
	require.NoError(t, f.Close())
	for name, call := range map[string]func() error{
		"ReadAt":   func() error { _, err := f.ReadAt(make([]byte, 1), 0); return err },
		"Write":    func() error { _, err := f.Write([]byte("d")); return err },
		"Truncate": func() error { return f.Truncate(0) },
		"Stat":     func() error { _, err := f.Stat(); return err },
		"Map":      func() error { _, err := f.Map(1); return err },
		"Sync":     f.Sync,
		"SyncData": f.SyncData,
	} {
		assert.ErrorIs(t, call(), fs.ErrClosed, name)
	}
}

func testMap(t *testing.T, r testFS) {
	content := bytes.Repeat([]byte("0123456789abcdef"), 1000)
	r.write(t, "a", string(content))
	f, err := r.Open(r.path("a"))
	require.NoError(t, err)
	m, err := f.Map(10_000)
	require.NoError(t, err)
	require.NoError(t, f.Close()) // the mapping outlives the file
	require.NoError(t, r.Remove(r.path("a")))
	for _, advice := range []Advice{AdviseNormal, AdviseRandom, AdviseSequential, AdviseDontNeed, AdvisePresent} {
		assert.NoError(t, m.Advise(advice))
	}
	assert.NoError(t, m.WillRead(0, 10_000))
	assert.NoError(t, m.WillRead(9_000, 9_001))
	require.NoError(t, Guard(func() { assert.True(t, bytes.Equal(content[:10_000], m.Bytes())) }))
	require.NoError(t, m.Close())
	require.NoError(t, m.Close())
	assert.Nil(t, m.Bytes())
	assert.ErrorIs(t, m.Advise(AdviseNormal), fs.ErrClosed)
	assert.ErrorIs(t, m.WillRead(0, 1), fs.ErrClosed)
}

func testMapEmpty(t *testing.T, r testFS) {
	r.write(t, "a", "")
	f, err := r.Open(r.path("a"))
	require.NoError(t, err)
	defer f.Close()
	m, err := f.Map(0)
	require.NoError(t, err)
	assert.Empty(t, m.Bytes())
	assert.NoError(t, m.Advise(AdviseRandom))
	assert.NoError(t, m.Close())
}

func testMapTooMuch(t *testing.T, r testFS) {
	r.write(t, "a", "abc")
	f, err := r.Open(r.path("a"))
	require.NoError(t, err)
	defer f.Close()
	_, err = f.Map(4)
	assert.ErrorIs(t, err, io.ErrUnexpectedEOF)
	_, err = f.Map(-1)
	assert.ErrorIs(t, err, fs.ErrInvalid)
}

func testLock(t *testing.T, r testFS) {
	lock, err := r.Lock(r.path("LOCK"), "process 17")
	require.NoError(t, err)
	_, err = r.Lock(r.path("LOCK"), "process 18")
	assert.ErrorIs(t, err, ErrLocked)
	var locked *LockedError
	require.ErrorAs(t, err, &locked)
	assert.Equal(t, LockedError{Name: r.path("LOCK"), Holder: "process 17"}, *locked)
	other, err := r.Lock(r.path("LOCK2"), "process 18")
	require.NoError(t, err)
	require.NoError(t, other.Close())
	require.NoError(t, lock.Close())
	require.NoError(t, lock.Close())
	assert.Empty(t, r.read(t, "LOCK"))
	lock, err = r.Lock(r.path("LOCK"), "18")
	require.NoError(t, err)
	assert.Equal(t, "18", r.read(t, "LOCK"))
	require.NoError(t, lock.Close())
}

func testFree(t *testing.T, r testFS) {
	free, err := r.Free(r.dir)
	require.NoError(t, err)
	assert.Positive(t, free.Bytes)
	assert.GreaterOrEqual(t, free.Size, free.Bytes)
	assert.NotZero(t, free.Inodes)
}

func testSyncDir(t *testing.T, r testFS) {
	r.write(t, "a", "")
	assert.NoError(t, r.SyncDir(r.dir))
}

func testAppendMap(t *testing.T, r testFS) {
	m, err := r.CreateAppendMap(r.path("log"), 10_000)
	require.NoError(t, err)
	var want []byte
	for i := range 90 {
		record := bytes.Repeat([]byte{byte(i + 1)}, i)
		offset, err := m.Append(record)
		require.NoError(t, err)
		assert.EqualValues(t, len(want), offset)
		want = append(want, record...)
		assert.EqualValues(t, len(want), m.Size())
		if i%10 == 0 {
			require.NoError(t, m.Sync(offset))
			require.NoError(t, m.Sync(m.Size()))
			require.NoError(t, m.Sync(offset)) // less than before has no effect
		}
	}
	require.NoError(t, m.Close())
	assert.Equal(t, string(want), r.read(t, "log")) // truncated to the appended bytes
}

func testAppendMapFull(t *testing.T, r testFS) {
	m, err := r.CreateAppendMap(r.path("log"), 10)
	require.NoError(t, err)
	defer m.Close()
	_, err = m.Append([]byte("1234567"))
	require.NoError(t, err)
	_, err = m.Append([]byte("8901"))
	assert.ErrorIs(t, err, ErrFull)
	assert.EqualValues(t, 7, m.Size())
	_, err = m.Append([]byte("890")) // smaller data still fit
	require.NoError(t, err)
	_, err = m.Append(nil)
	require.NoError(t, err)
	_, err = m.Append([]byte("1"))
	assert.ErrorIs(t, err, ErrFull)
	require.NoError(t, m.Close())
	assert.Equal(t, "1234567890", r.read(t, "log"))
}

func testAppendMapBadArguments(t *testing.T, r testFS) {
	_, err := r.CreateAppendMap(r.path("log"), 0)
	assert.ErrorIs(t, err, fs.ErrInvalid)
	_, err = r.CreateAppendMap(r.path("log"), -1)
	assert.ErrorIs(t, err, fs.ErrInvalid)
	assert.Empty(t, r.list(t))
	m, err := r.CreateAppendMap(r.path("log"), 10)
	require.NoError(t, err)
	defer m.Close()
	assert.Error(t, m.Sync(1))
	assert.Error(t, m.Sync(-1))
	assert.NoError(t, m.Sync(0))
	_, err = m.Append([]byte("a")) // ErrUnsupported does not fail the file
	assert.NoError(t, err)
}

func testAppendMapClosed(t *testing.T, r testFS) {
	m, err := r.CreateAppendMap(r.path("log"), 10)
	require.NoError(t, err)
	_, err = m.Append([]byte("abc"))
	require.NoError(t, err)
	require.NoError(t, m.Close())
	require.NoError(t, m.Close())
	_, err = m.Append([]byte("d"))
	assert.ErrorIs(t, err, fs.ErrClosed)
	assert.ErrorIs(t, m.Sync(3), fs.ErrClosed)
	assert.EqualValues(t, 3, m.Size())
	assert.Equal(t, "abc", r.read(t, "log"))
}

func testAppendMapReadBesideIt(t *testing.T, r testFS) {
	m, err := r.CreateAppendMap(r.path("log"), 10)
	require.NoError(t, err)
	defer m.Close()
	_, err = m.Append([]byte("abc"))
	require.NoError(t, err)
	content := r.read(t, "log")
	assert.Equal(t, "abc", content[:3])
	assert.Empty(t, bytes.Trim([]byte(content[3:]), "\x00"))
	require.NoError(t, r.Rename(r.path("log"), r.path("log2")))
	_, err = m.Append([]byte("def"))
	require.NoError(t, err)
	assert.Equal(t, "abcdef", r.read(t, "log2")[:6])
}

func testAppendMapSyncBesideIt(t *testing.T, r testFS) {
	const records, recordBytes = 2000, 50
	m, err := r.CreateAppendMap(r.path("log"), records*recordBytes)
	require.NoError(t, err)
	defer m.Close()
	appended := make(chan int64, records)
	var syncer sync.WaitGroup
	syncer.Go(func() {
		for through := range appended {
			for len(appended) > 0 { // like group commit: the last one covers all
				through = <-appended
			}
			assert.NoError(t, m.Sync(through))
		}
	})
	record := bytes.Repeat([]byte{7}, recordBytes)
	for range records {
		offset, err := m.Append(record)
		require.NoError(t, err)
		appended <- offset + recordBytes
	}
	close(appended)
	syncer.Wait()
	require.NoError(t, m.Close())
	assert.Equal(t, string(bytes.Repeat(record, records)), r.read(t, "log"))
}

func testReadersBesideTheWriter(t *testing.T, r testFS) {
	f, err := r.Create(r.path("a"))
	require.NoError(t, err)
	defer f.Close()
	var readers sync.WaitGroup
	for range 3 {
		readers.Go(func() {
			p := make([]byte, 1000)
			for offset := int64(0); offset < 50_000; {
				n, err := f.ReadAt(p, offset)
				if err != nil && !errors.Is(err, io.EOF) {
					assert.NoError(t, err)
					return
				}
				for i, b := range p[:n] {
					if b != byte(offset+int64(i)) {
						assert.Failf(t, "wrong byte", "offset %d", offset+int64(i))
						return
					}
				}
				offset += int64(n)
			}
		})
	}
	for i := 0; i < 50_000; i += 100 {
		var p [100]byte
		for j := range p {
			p[j] = byte(i + j)
		}
		_, err := f.Write(p[:])
		require.NoError(t, err)
	}
	readers.Wait()
}

func testAtomicFile(t *testing.T, r testFS) {
	require.NoError(t, WriteFileAtomic(r, r.path("a"), []byte("one")))
	assert.Equal(t, "one", r.read(t, "a"))
	require.NoError(t, WriteFileAtomic(r, r.path("a"), nil))
	assert.Empty(t, r.read(t, "a"))
	assert.Equal(t, []string{"a"}, r.list(t))
	_, err := ReadFile(r, r.path("missing"))
	assert.ErrorIs(t, err, fs.ErrNotExist)
}

func testAtomicFileIgnoresOldTemp(t *testing.T, r testFS) {
	r.write(t, "a.tmp", "left by a crash, and longer")
	require.NoError(t, WriteFileAtomic(r, r.path("a"), []byte("new")))
	assert.Equal(t, "new", r.read(t, "a"))
	assert.Equal(t, []string{"a"}, r.list(t))
}
