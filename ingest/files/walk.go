package files

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"docstore/ingest"
	"docstore/ingest/records"
	"docstore/queue"
)

// directoryReader reads every regular file below a directory as a document with its relative
// path as id, in the order of the paths.
type directoryReader struct {
	in   *input
	at   cursor
	next func() (string, error, bool)
	stop func()
}

func openDirectory(in *input) *directoryReader {
	r := &directoryReader{in: in, at: in.from}
	r.at.WholeFile = true
	r.next, r.stop = iter.Pull2(regularFiles(in.name))
	return r
}

// errStopped ends a walk.
var errStopped = errors.New("stopped")

// regularFiles iterates over the paths below a directory. It ends after the first error.
func regularFiles(root string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || !entry.Type().IsRegular() {
				return err
			}
			if !yield(path, nil) {
				return errStopped
			}
			return nil
		})
		if err != nil && !errors.Is(err, errStopped) {
			yield("", err)
		}
	}
}

func (r *directoryReader) fill(ctx context.Context, b *batch) error {
	for !b.full() {
		if err := ctx.Err(); err != nil {
			return err
		}
		path, err, more := r.next()
		if !more {
			return io.EOF
		}
		if err != nil {
			return err
		}
		r.at.Path = filepath.Join(r.in.from.Path, strings.TrimPrefix(path, r.in.name))
		if r.in.skip != nil && comparePaths(r.at.Path, r.in.skip.Path) <= 0 {
			continue
		}
		r.at.Lines++
		document := r.in.loadDocument(path)
		r.at.Offset = int64(len(document.Document))
		document.Document = b.keep(document.Document)
		b.Bytes += r.at.Offset
		b.add(document, r.at, 0)
	}
	return nil
}

func (r *directoryReader) close() { r.stop() }

// comparePaths compares paths in the order of a directory walk: a directory's files come
// before the directory's next sibling.
func comparePaths(a, b string) int {
	separator := string(filepath.Separator)
	return slices.Compare(strings.Split(a, separator), strings.Split(b, separator))
}

// loadDocument reads a file below the directory.
func (in *input) loadDocument(path string) ingest.Record {
	id, err := filepath.Rel(in.name, path)
	if err != nil {
		return ingest.Record{Problem: err}
	}
	load := os.ReadFile
	if in.format == JSONFiles {
		id, load = idOfJSON(id), loadJSON
	}
	if len(id) > queue.MaxIDBytes {
		return ingest.Record{Problem: fmt.Errorf("its id, the path, has %d bytes, and at most %d are allowed", len(id), queue.MaxIDBytes)}
	}
	info, err := os.Stat(path)
	if err != nil {
		return ingest.Record{Problem: err}
	}
	if info.Size() > queue.MaxDocumentBytes {
		return ingest.Record{Problem: tooLarge(info.Size())}
	}
	document, err := load(path)
	if err != nil {
		return ingest.Record{Problem: err}
	}
	if len(document) > queue.MaxDocumentBytes { // it has grown
		return ingest.Record{Problem: tooLarge(int64(len(document)))}
	}
	return ingest.Record{ID: []byte(filepath.ToSlash(id)), Document: document}
}

// idOfJSON returns a path without the endings of a compressed JSON file.
func idOfJSON(path string) string {
	return strings.TrimSuffix(records.TrimCompression(path), ".json")
}

// loadJSON reads the object of a file, which may be compressed.
func loadJSON(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }() // read only
	return records.ReadObject(file, queue.MaxDocumentBytes)
}

func tooLarge(bytes int64) error {
	return fmt.Errorf("the document has %d bytes, and at most %d are allowed", bytes, queue.MaxDocumentBytes)
}
