package shardset

import (
	"errors"
	"io/fs"
	"log/slog"
	"path/filepath"

	"docstore/internal/vfs"
)

// dictionaryFile is the compression dictionary of all shards.
type dictionaryFile struct {
	Format  int    `json:"format"`
	Codec   string `json:"codec"`
	Content []byte `json:"content"`
}

// readDictionary returns the dictionary of the codec; nil: there is none, and another one will
// be trained.
func readDictionary(fsys vfs.FS, dir, codec string, logger *slog.Logger) []byte {
	var d dictionaryFile
	err := readFile(fsys, filepath.Join(dir, dictionaryName), &d)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		logger.Warn("the dictionary cannot be reused; another one will be trained", "queue", dir, "error", err)
	}
	if err != nil || d.Codec != codec {
		return nil
	}
	return d.Content
}

func (w *Writer) saveDictionary(content []byte) {
	d := dictionaryFile{fileFormat, w.options.Codec, content}
	if err := writeFile(w.options.FS, filepath.Join(w.dir, dictionaryName), d); err != nil {
		w.options.Logger.Warn("the dictionary cannot be kept for the next run", "queue", w.dir, "error", err)
	}
}

// RemoveDictionary removes the dictionary of the shards, because documents were erased
// that it may contain pieces of.
func RemoveDictionary(fsys vfs.FS, dir string) error {
	if err := fsys.Remove(filepath.Join(dir, dictionaryName)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return fsys.SyncDir(dir)
}
