package server

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"docstore/internal/vfs"
)

// A data directory belongs to one process:
//
//	LOCK     held while the server runs
//	NAME/    the directory of the collection NAME (docservice), or of its shards (docservice/column)
const lockName = "LOCK"

// collectionName matches valid names of collections: they are used as directories, in URLs
// and as labels.
var collectionName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// Collection is one --collection NAME=QUEUEDIR or NAME=URL.
type Collection struct {
	Name   string
	Source string // the queue's directory, or the URL of the collection in an object store
}

// IsURL reports whether the collection is in an object store.
func (c Collection) IsURL() bool { return strings.Contains(c.Source, "://") }

// ValidName reports whether a collection may have a name.
func ValidName(name string) bool { return collectionName.MatchString(name) && name != lockName }

// RequireQueues reports missing queues, and queues that overlap the data directory: files
// of one could be mistaken for, or copied with, files of the other.
func RequireQueues(collections []Collection, dataDir string) error {
	var problems []error
	data := realPath(dataDir)
	for _, c := range collections {
		if c.IsURL() {
			continue
		}
		queueDir := realPath(c.Source)
		if within(queueDir, data) || within(filepath.Join(data, c.Name), queueDir) {
			problems = append(problems, fmt.Errorf("data directory %s and queue directory %s of collection %s overlap; choose another --data", dataDir, c.Source, c.Name))
			continue
		}
		info, err := os.Stat(c.Source)
		if err == nil && !info.IsDir() {
			err = errors.New("not a directory")
		}
		if err != nil {
			problems = append(problems, fmt.Errorf("queue directory %s of collection %s: %w; create it, or run rsync first", c.Source, c.Name, err))
		}
	}
	return errors.Join(problems...)
}

// realPath returns the absolute path of a directory, which need not exist, without symbolic
// links.
func realPath(dir string) string {
	absolute, err := filepath.Abs(dir)
	if err != nil {
		return dir
	}
	if path, err := filepath.EvalSymlinks(absolute); err == nil {
		return path
	}
	parent := filepath.Dir(absolute)
	if parent == absolute {
		return absolute
	}
	return filepath.Join(realPath(parent), filepath.Base(absolute))
}

// within reports whether path is dir or inside it.
func within(dir, path string) bool {
	rest, err := filepath.Rel(dir, path)
	return err == nil && filepath.IsLocal(rest)
}

// lockData creates the data directory if necessary and locks it. Only one process may use a
// data directory.
func lockData(fsys vfs.FS, dir string) (io.Closer, error) {
	if err := vfs.MakeDir(fsys, dir); err != nil {
		return nil, err
	}
	lock, err := fsys.Lock(filepath.Join(dir, lockName), fmt.Sprintf("docserviced, process %d", os.Getpid()))
	var locked *vfs.LockedError
	if errors.As(err, &locked) {
		return nil, fmt.Errorf("data directory %s is in use by %s; stop that process, or choose another --data", dir, locked.Holder)
	}
	return lock, err
}
