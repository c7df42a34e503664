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
		document := loadDocument(r.in.name, path)
		r.at.Offset = int64(len(document.Document))
		document.Document = b.keep(document.Document)
		b.Bytes += r.at.Offset
		b.add(document, r.at)
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

// loadDocument reads a file below a directory.
func loadDocument(root, path string) ingest.Record {
	id, err := filepath.Rel(root, path)
	if err != nil {
		return ingest.Record{Problem: err}
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
	document, err := os.ReadFile(path)
	if err != nil {
		return ingest.Record{Problem: err}
	}
	if len(document) > queue.MaxDocumentBytes { // it has grown
		return ingest.Record{Problem: tooLarge(int64(len(document)))}
	}
	return ingest.Record{ID: []byte(filepath.ToSlash(id)), Document: document}
}

func tooLarge(bytes int64) error {
	return fmt.Errorf("the document has %d bytes, and at most %d are allowed", bytes, queue.MaxDocumentBytes)
}
