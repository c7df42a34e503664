package updater

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"docstore/internal/vfs"
	"docstore/queue/shard"
)

// readLayout returns the layout of the queue in dir. All shards exist.
func readLayout(dir string) (shard.Layout, error) {
	if err := requireDir(dir); err != nil {
		return shard.Layout{}, err
	}
	layout, err := shard.Read(vfs.OS, dir)
	if err != nil {
		return shard.Layout{}, err // it has advice
	}
	for i := range layout.Shards {
		if _, err := os.Stat(layout.Dir(dir, i)); errors.Is(err, fs.ErrNotExist) {
			return shard.Layout{}, fmt.Errorf("%s is missing, and %s has %d shards; restore it from a copy", layout.Dir(dir, i), dir, layout.Shards)
		}
	}
	return layout, nil
}

// queueDirs returns the directories of the shards of the queue in dir.
func queueDirs(dir string) ([]string, error) {
	layout, err := readLayout(dir)
	dirs := make([]string, layout.Shards)
	for i := range dirs {
		dirs[i] = layout.Dir(dir, i)
	}
	return dirs, err
}

// queueOf returns the directory of the shard of the queue in dir that has the id.
func queueOf(dir string, id []byte) (string, error) {
	layout, err := readLayout(dir)
	if err != nil {
		return "", err
	}
	return layout.Dir(dir, layout.Shard(id)), nil
}

// requireOneShard refuses several shards for a command whose arguments or results have
// positions, which are those of a shard.
func requireOneShard(dir, command string) error {
	layout, err := readLayout(dir)
	if err == nil && layout.Shards > 1 {
		err = fmt.Errorf("%s has %d shards, and %s works on one of them: give --queue %s, for example", dir, layout.Shards, command, layout.Dir(dir, 0))
	}
	return err
}
