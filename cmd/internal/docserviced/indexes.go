package docserviced

import (
	"fmt"
	"os"
	"path/filepath"

	"docstore/docservice/server"
	"docstore/internal/vfs"
)

// listIndexes returns the directories in a data directory that have an index: those of
// collections and shards.
func listIndexes(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, entry := range entries {
		if !entry.IsDir() || !server.ValidName(entry.Name()) {
			continue
		}
		shards, err := filepath.Glob(filepath.Join(dir, entry.Name(), "shard-*"))
		if err != nil {
			return nil, err
		}
		for _, path := range shards {
			names = append(names, filepath.Join(entry.Name(), filepath.Base(path)))
		}
		if len(shards) == 0 {
			names = append(names, entry.Name())
		}
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("%s has no index; give the --data of docserviced serve", dir)
	}
	return names, nil
}

// moveDir durably renames a complete directory to its final name.
func moveDir(from, to string) error {
	if err := vfs.OS.SyncDir(from); err != nil {
		return err
	}
	if err := vfs.OS.Rename(from, to); err != nil {
		return err
	}
	return vfs.OS.SyncDir(filepath.Dir(to))
}
