package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"docstore/cmd/internal/cli"
	"docstore/internal/vfs"
)

// A data directory belongs to one daemon:
//
//	LOCK     held while the daemon runs
//	NAME/    the directory of the collection NAME (docservice)
const lockName = "LOCK"

// collectionName is what may name a collection: it becomes a directory, a part
// of URLs and a label.
var collectionName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// collectionFlag is one --collection NAME=QUEUEDIR.
type collectionFlag struct {
	name, queueDir string
}

// parseCollections reads the values of --collection, or says all that is wrong with
// them.
func parseCollections(values []string) ([]collectionFlag, error) {
	if len(values) == 0 {
		return nil, cli.Usagef("--collection is missing, there is nothing to serve: give at least one NAME=QUEUEDIR")
	}
	var collections []collectionFlag
	var problems []error
	seen := make(map[string]bool)
	for _, value := range values {
		name, dir, _ := strings.Cut(value, "=")
		switch {
		case dir == "":
			problems = append(problems, cli.Usagef("--collection %s: it must be NAME=QUEUEDIR", value))
		case !collectionName.MatchString(name) || name == lockName:
			problems = append(problems, cli.Usagef("--collection %s: a name is up to 64 letters, digits, dots, dashes and underscores, a letter or digit first, and not %s", value, lockName))
		case seen[name]:
			problems = append(problems, cli.Usagef("--collection %s: the name is given twice", value))
		}
		seen[name] = true
		collections = append(collections, collectionFlag{name, dir})
	}
	return collections, errors.Join(problems...)
}

// requireQueues says which queues are not there, and which share a directory with the
// indexes below dataDir: files of one would be taken for, or copied with, the other's.
func requireQueues(collections []collectionFlag, dataDir string) error {
	var problems []error
	data := realPath(dataDir)
	for _, c := range collections {
		queueDir := realPath(c.queueDir)
		if within(queueDir, data) || within(filepath.Join(data, c.name), queueDir) {
			problems = append(problems, fmt.Errorf("data directory %s and queue directory %s of collection %s overlap; give another --data", dataDir, c.queueDir, c.name))
			continue
		}
		info, err := os.Stat(c.queueDir)
		if err == nil && !info.IsDir() {
			err = errors.New("not a directory")
		}
		if err != nil {
			problems = append(problems, fmt.Errorf("queue directory %s of collection %s: %w; make it, or have rsync make it first", c.queueDir, c.name, err))
		}
	}
	return errors.Join(problems...)
}

// realPath is the absolute path of a directory, which need not exist, without symbolic
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

// within reports whether a path is a directory or lies in it.
func within(dir, path string) bool {
	rest, err := filepath.Rel(dir, path)
	return err == nil && filepath.IsLocal(rest)
}

// lockData makes the data directory if need be and takes its lock. Only one
// process may have a data directory.
func lockData(dir string) (io.Closer, error) {
	if err := vfs.MakeDir(vfs.OS, dir); err != nil {
		return nil, err
	}
	lock, err := vfs.OS.Lock(filepath.Join(dir, lockName), fmt.Sprintf("docserviced, process %d", os.Getpid()))
	var locked *vfs.LockedError
	if errors.As(err, &locked) {
		return nil, fmt.Errorf("data directory %s is in use by %s; stop that, or give another --data", dir, locked.Holder)
	}
	return lock, err
}

// listIndexes returns the collections that have an index in a data directory.
func listIndexes(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, entry := range entries {
		if entry.IsDir() && collectionName.MatchString(entry.Name()) {
			names = append(names, entry.Name())
		}
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("%s holds no index; give the directory that docserviced serve --data was given", dir)
	}
	return names, nil
}

// moveDir gives a complete directory its final name, durably.
func moveDir(from, to string) error {
	if err := vfs.OS.SyncDir(from); err != nil {
		return err
	}
	if err := vfs.OS.Rename(from, to); err != nil {
		return err
	}
	return vfs.OS.SyncDir(filepath.Dir(to))
}
