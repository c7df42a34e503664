package vfs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/internal/checksum"
	"docstore/internal/testseed"
)

// modelFS is an FS with at most one open file of each kind, for random operations with
// comparable results.
type modelFS struct {
	FS
	dir       string
	file      File
	appendMap AppendMap
	mapped    FileID // of the append map, which has no other writer
	buffered  bool   // no append maps: their length differs from Mem's
}

func newModelRoom(fsys FS, dir string) *modelFS { return &modelFS{FS: fsys, dir: dir} }

func (r *modelFS) close() {
	if r.file != nil {
		r.file.Close()
	}
	if r.appendMap != nil {
		r.appendMap.Close()
	}
}

// outcome classifies an error.
func outcome(err error) string {
	for _, target := range []error{
		fs.ErrNotExist, fs.ErrExist, fs.ErrClosed, fs.ErrInvalid, ErrFull, ErrLocked, io.EOF, io.ErrUnexpectedEOF,
	} {
		if errors.Is(err, target) {
			return target.Error()
		}
	}
	if err != nil {
		return "another error"
	}
	return "ok"
}

// randomOp executes a random operation and returns its result.
func randomOp(rnd *rand.Rand, r *modelFS) string {
	name := func() string {
		names := []string{"d0", "d1", "d0/d0", "d0/a", "d0/b", "d1/a", "d1/b", "a", "b"}
		return filepath.Join(r.dir, names[rnd.IntN(len(names))])
	}
	bytesToWrite := func() []byte {
		return bytes.Repeat([]byte{byte(rnd.IntN(256))}, rnd.IntN(100))
	}
	switch op := rnd.IntN(20); op {
	case 0, 1:
		return "mkdir " + outcome(r.MkdirAll(name()))
	case 2:
		return "remove " + outcome(r.Remove(name()))
	case 3:
		if rnd.IntN(10) > 0 {
			return ""
		}
		return "remove all " + outcome(r.RemoveAll(name()))
	case 4, 5:
		return "rename " + outcome(r.Rename(name(), name()))
	case 6:
		return "link " + outcome(r.Link(name(), name()))
	case 7:
		names, err := r.List(name())
		return fmt.Sprint("list ", names, outcome(err))
	case 8:
		info, err := r.Stat(name())
		if info.Dir {
			info.Size = 0 // sizes of directories differ
		}
		return fmt.Sprint("stat ", info.Size, info.Dir, outcome(err))
	case 9, 10, 11:
		f, err := r.Create(name())
		return "create " + r.swapFile(f, err)
	case 12:
		name := name()
		if info, err := r.Stat(name); err == nil && info.ID == r.mapped {
			return ""
		}
		f, err := r.OpenAppend(name)
		return "open append " + r.swapFile(f, err)
	case 13:
		name, capacity := name(), rnd.Int64N(200)
		if r.buffered {
			return ""
		}
		return "create append map " + r.swapAppendMap(name, capacity)
	case 14:
		if r.appendMap == nil {
			return ""
		}
		offset, err := r.appendMap.Append(bytesToWrite())
		return fmt.Sprint("append ", offset, r.appendMap.Size(), outcome(err))
	default:
		return randomFileOp(rnd, r, bytesToWrite())
	}
}

func (r *modelFS) swapFile(f File, err error) string {
	if err == nil {
		if r.file != nil {
			r.file.Close()
		}
		r.file = f
	}
	return outcome(err)
}

func (r *modelFS) swapAppendMap(name string, capacity int64) string {
	m, err := r.CreateAppendMap(name, capacity)
	if err != nil {
		return outcome(err)
	}
	if r.appendMap != nil {
		err = r.appendMap.Close()
	}
	info, statErr := r.Stat(name)
	r.appendMap, r.mapped = m, info.ID
	return outcome(errors.Join(err, statErr))
}

func randomFileOp(rnd *rand.Rand, r *modelFS, p []byte) string {
	offset := rnd.Int64N(200)
	if r.file == nil {
		return ""
	}
	switch op := rnd.IntN(7); op {
	case 0, 1:
		n, err := r.file.Write(p)
		return fmt.Sprint("write ", n, outcome(err))
	case 6:
		n, err := r.file.WriteAt(p, offset)
		return fmt.Sprint("write at ", n, outcome(err))
	case 2:
		return "truncate " + outcome(r.file.Truncate(offset))
	case 3:
		n, err := r.file.ReadAt(p, offset)
		return fmt.Sprint("read ", checksum.Of(p[:n]), outcome(err))
	case 4:
		m, err := r.file.Map(offset)
		if err != nil {
			return "map " + outcome(err)
		}
		defer m.Close()
		return fmt.Sprint("map ", checksum.Of(m.Bytes()))
	default:
		info, err := r.file.Stat()
		return fmt.Sprint("stat ", info.Size, outcome(err))
	}
}

// allocates reports whether the append maps of a directory are real mappings.
func allocates(t *testing.T, dir string) bool {
	t.Helper()
	name := filepath.Join(dir, "log")
	m, err := OS.CreateAppendMap(name, 1)
	require.NoError(t, err)
	defer m.Close()
	info, err := OS.Stat(name)
	require.NoError(t, err)
	return info.Size == 1
}

// TestMemIsLikeOS: for random operations Mem and OS have equal results.
func TestMemIsLikeOS(t *testing.T) {
	rnd := testseed.Rand(t)
	buffered := !allocates(t, t.TempDir())
	for range 20 {
		seed := rnd.Uint64()
		mem, system := newModelRoom(NewMem(), "/"), newModelRoom(OS, t.TempDir())
		mem.buffered, system.buffered = buffered, buffered
		memRand, systemRand := rand.New(rand.NewPCG(seed, 1)), rand.New(rand.NewPCG(seed, 1))
		for i := range 500 {
			got, want := randomOp(memRand, mem), randomOp(systemRand, system)
			require.Equal(t, want, got, "operation %d", i)
		}
		require.Equal(t, tree(t, system, system.dir), tree(t, mem, mem.dir))
		mem.close()
		system.close()
	}
}
