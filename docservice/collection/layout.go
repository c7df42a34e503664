package collection

import (
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/cockroachdb/errors"

	"docstore/internal/vfs"
	"docstore/lsm"
	"docstore/queue"
)

// A collection's directory holds
//
//	SERVING                  the name of the served index, "index-0001.v1\n"
//	index-0001.v1/           the index, a store of package lsm
//	index-0001.v1.verified   the segments that were found sound (verified.go)
//	REINDEX                  another index is requested (reindex.go)
//
// While a replacement is built, the directory holds an index of the next number, too. To
// replace SERVING is the commit point of its takeover; the previous index is removed then.
// Open removes every index that is neither served nor the next one. If SERVING is missing, as
// in a checkpoint, or names an index that is missing, the lowest number is served. An index too
// damaged to be opened is kept as index-0001.v1.damaged for analysis; it may be deleted.
//
// The extension names the format of the values (entry.go). Builds before 2026-11-22 write
// values without places to index-0001, without an extension. Open removes such an index, and
// another one is built from the queue.
const (
	servingName       = "SERVING"
	indexPrefix       = "index-"
	formatExtension   = ".v1"
	verifiedExtension = ".verified"
	removedExtension  = ".removed" // of an index that is being removed
	damagedExtension  = ".damaged" // of an index that could not be opened
)

// indexNumber identifies an index in the directory of its collection.
type indexNumber uint32

// firstIndex is the number of a collection's first index.
const firstIndex indexNumber = 1

// next returns the number of the index that replaces this one.
func (n indexNumber) next() indexNumber { return n + 1 }

func (n indexNumber) name() string {
	return fmt.Sprintf("%s%04d%s", indexPrefix, uint32(n), formatExtension)
}

func (n indexNumber) path(dir string) string { return filepath.Join(dir, n.name()) }

func (n indexNumber) verifiedPath(dir string) string { return n.path(dir) + verifiedExtension }

// parseIndexName is the inverse of name.
func parseIndexName(name string) (n indexNumber, ok bool) {
	digits := strings.TrimSuffix(strings.TrimPrefix(name, indexPrefix), formatExtension)
	number, err := strconv.ParseUint(digits, 10, 32)
	n = indexNumber(number)
	return n, err == nil && number > 0 && n.name() == name
}

// isOldIndex reports whether a name is that of an index without places, or of its verified
// segments, also partly written.
func isOldIndex(name string) bool {
	name = strings.TrimSuffix(strings.TrimSuffix(name, verifiedExtension+vfs.TmpSuffix), verifiedExtension)
	_, ok := parseIndexName(name + formatExtension)
	return ok
}

// listIndexes returns the numbers of the indexes in a collection's directory, the served one
// first. If the directory does not exist, the list is empty.
func listIndexes(files vfs.FS, dir string) ([]indexNumber, error) {
	names, err := files.List(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var numbers []indexNumber
	for _, name := range names { // sorted
		if n, ok := parseIndexName(name); ok {
			numbers = append(numbers, n)
		}
	}
	named, err := readServing(files, dir)
	if i := slices.Index(numbers, named); i >= 0 {
		numbers = slices.Insert(slices.Delete(numbers, i, i+1), 0, named)
	}
	return numbers, err
}

// readServing returns the index that SERVING names, 0 if it names none.
func readServing(files vfs.FS, dir string) (indexNumber, error) {
	content, err := vfs.ReadFile(files, filepath.Join(dir, servingName))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	named, _ := parseIndexName(strings.TrimSuffix(string(content), "\n"))
	return named, err
}

// writeServing durably makes an index the served one.
func writeServing(files vfs.FS, dir string, n indexNumber) error {
	return vfs.WriteFileAtomic(files, filepath.Join(dir, servingName), []byte(n.name()+"\n"))
}

// removeLeftovers deletes the indexes that were renamed for removal, once the rename is
// durable, those without places, and a partly written SERVING.
func (c *Collection) removeLeftovers() error {
	names, err := c.options.FS.List(c.dir)
	names = slices.DeleteFunc(names, func(name string) bool {
		removed := strings.HasPrefix(name, indexPrefix) && strings.HasSuffix(name, removedExtension)
		return !removed && !isOldIndex(name) && name != servingName+vfs.TmpSuffix
	})
	if err != nil || len(names) == 0 {
		return err
	}
	if err := c.options.FS.SyncDir(c.dir); err != nil {
		return err
	}
	for _, name := range names {
		path := filepath.Join(c.dir, name)
		if isOldIndex(name) {
			c.logger.Warn("removing an index of an earlier build; another one is built from the queue", "path", path)
		}
		err = errors.CombineErrors(err, c.options.FS.RemoveAll(path))
	}
	return err
}

// keepDamagedIndex renames a damaged index so that it is not opened again. It replaces one
// that was renamed before.
func (c *Collection) keepDamagedIndex(n indexNumber) error {
	aside := n.path(c.dir) + damagedExtension
	if err := c.options.FS.RemoveAll(aside); err != nil {
		return err
	}
	if err := c.options.FS.Rename(n.path(c.dir), aside); err != nil {
		return err
	}
	return c.options.FS.SyncDir(c.dir)
}

// CheckIndex reads and verifies all of the index in a collection's directory, and of its
// replacement if there is one. The collection may be open. The logger may be nil. progress,
// if not nil, is called with the bytes of tables verified so far.
func CheckIndex(dir string, logger *slog.Logger, progress func(done, total int64)) error {
	numbers, err := listIndexes(vfs.OS, dir)
	if err == nil && len(numbers) == 0 {
		err = errors.Newf("%s holds no index", dir)
	}
	for _, n := range numbers {
		err = errors.CombineErrors(err, withIndex(n.path(dir), &lsm.Options{ReadOnly: true, Logger: logger},
			func(index *lsm.DB) error { return index.CheckWith(progress) }))
	}
	return err
}

// errContinues ends the scan of CheckPosition.
var errContinues = errors.New("an entry follows")

// CheckPosition checks that the queue in queueDir continues the history that the index in
// dir has read. Otherwise the error matches queue.ErrForked, queue.ErrDiverged or
// queue.ErrTruncated, or queue.ErrUnavailable if files are missing. The collection may be
// open.
func CheckPosition(dir, queueDir string) error {
	numbers, err := listIndexes(vfs.OS, dir)
	if err != nil || len(numbers) == 0 {
		return errors.CombineErrors(err, errors.Newf("%s holds no index", dir))
	}
	var state indexState
	err = withIndex(numbers[0].path(dir), &lsm.Options{ReadOnly: true}, func(index *lsm.DB) (err error) {
		state, err = readIndexState(index)
		return err
	})
	if err != nil {
		return err
	}
	reader, err := queue.OpenReader(queueDir, nil)
	if err != nil {
		return err
	}
	err = reader.Scan(context.Background(), state.position, func(queue.Entry) error { return errContinues })
	if errors.Is(err, errContinues) {
		err = nil
	}
	return errors.CombineErrors(err, reader.Close())
}

// CheckpointIndex creates a collection's directory in target with a checkpoint of the
// served index, made of hard links as by lsm.DB.Checkpoint, and its position. The
// collection may be open. The logger may be nil. The error for an index that is damaged,
// lacks files, or is missing, matches ErrIndexDamaged.
func CheckpointIndex(fsys vfs.FS, dir, target string, logger *slog.Logger) error {
	if err := vfs.MakeDir(fsys, target); err != nil {
		return err
	}
	for served := indexNumber(0); ; {
		numbers, err := listIndexes(fsys, dir)
		if err == nil && len(numbers) == 0 {
			err = errors.Mark(errors.Newf("%s holds no index", dir), ErrIndexDamaged)
		}
		if err != nil {
			return err
		}
		before := served
		served = numbers[0]
		err = withIndex(served.path(dir), &lsm.Options{FS: fsys, ReadOnly: true, Logger: logger}, func(index *lsm.DB) error {
			return index.Checkpoint(firstIndex.path(target))
		})
		if errors.Is(err, lsm.ErrCorrupt) || errors.Is(err, lsm.ErrUnreadable) {
			return errors.Mark(err, ErrIndexDamaged)
		}
		switch {
		case err == nil, !errors.Is(err, fs.ErrNotExist):
			return err
		case served == before:
			return errors.Mark(err, ErrIndexDamaged)
		}
		// The replacement may have taken over meanwhile.
	}
}

// withIndex opens an index and calls fn.
func withIndex(path string, opts *lsm.Options, fn func(*lsm.DB) error) error {
	index, err := lsm.Open(path, opts)
	if err != nil {
		return err
	}
	return errors.CombineErrors(fn(index), index.Close())
}
