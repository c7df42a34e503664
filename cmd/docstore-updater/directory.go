package main

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"docstore/cmd/internal/records"
	"docstore/queue"
)

// readDirectory sends every regular file below a directory as a document with its relative
// path as id, in the order of the paths. It returns false if no more batches are wanted.
func (p *producer) readDirectory(ctx context.Context, in *input) bool {
	at := in.from
	at.WholeFile = true
	b := p.newBatch(in)
	walk := func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		at.Path = filepath.Join(in.from.Path, strings.TrimPrefix(path, in.name))
		if in.skip != nil && comparePaths(at.Path, in.skip.Path) <= 0 {
			return nil
		}
		at.Lines++
		b.items = append(b.items, p.load(b, path, at))
		if len(b.room) < p.batchBytes {
			return nil
		}
		full := b
		b = p.newBatch(in)
		if !p.send(ctx, full) {
			return context.Cause(ctx)
		}
		return nil
	}
	b.err = filepath.WalkDir(in.name, walk)
	failed := b.err != nil
	return p.send(ctx, b) && !failed
}

// comparePaths compares paths in the order of a directory walk: a directory's files come
// before the directory's next sibling.
func comparePaths(a, b string) int {
	separator := string(filepath.Separator)
	return slices.Compare(strings.Split(a, separator), strings.Split(b, separator))
}

// load reads one file into the batch.
func (p *producer) load(b *batch, path string, at cursor) item {
	id, err := filepath.Rel(b.in.name, path)
	if err != nil {
		return item{at: at, problem: err}
	}
	if len(id) > queue.MaxIDBytes {
		return item{at: at, problem: fmt.Errorf("its id, the path, has %d bytes, and at most %d are allowed", len(id), queue.MaxIDBytes)}
	}
	info, err := os.Stat(path)
	if err != nil {
		return item{at: at, problem: err}
	}
	if info.Size() > queue.MaxDocumentBytes {
		return item{at: at, problem: tooLarge(info.Size())}
	}
	document, err := os.ReadFile(path)
	if err != nil {
		return item{at: at, problem: err}
	}
	if len(document) > queue.MaxDocumentBytes { // it has grown
		return item{at: at, problem: tooLarge(int64(len(document)))}
	}
	at.Offset = int64(len(document))
	return item{at: at, entry: records.Entry{ID: []byte(filepath.ToSlash(id)), Document: b.keep(document)}}
}
