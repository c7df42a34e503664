package main

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"github.com/klauspost/compress/s2"

	"docstore/bench/internal/files"
	"docstore/queue"
)

// documentBytes is the approximate uncompressed size of the article's documents.
const documentBytes = 1000

// flushEvery is the number of updates that the queue makes durable together; the updater does so at
// least once a second.
const flushEvery = 1000

// appendDocument appends version v of document n.
func appendDocument(dst []byte, n, v int) []byte {
	random := rand.New(rand.NewPCG(uint64(n), uint64(v)))
	start := len(dst)
	dst = fmt.Appendf(dst, `{"id":"job-%010d","version":%d,"text":"`, n, v)
	for len(dst)-start < documentBytes-2 {
		dst = fmt.Appendf(dst, "word%d ", random.IntN(300))
	}
	return append(dst, `"}`...)
}

func documentID(n int) string { return fmt.Sprintf("job-%010d", n) }

// fileStore is the first version of the document store.
type fileStore struct {
	dir     string
	perFile int
	written int64
	plain   []byte // of a file
	packed  []byte
}

func (f *fileStore) name(file int) string { return filepath.Join(f.dir, fmt.Sprintf("%08d.s2", file)) }

// write compresses documents, a line each, into a file and syncs it.
func (f *fileStore) write(file int, plain []byte) (err error) {
	f.packed = s2.Encode(f.packed[:cap(f.packed)], plain)
	out, err := os.OpenFile(f.name(file), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	if _, err := out.Write(f.packed); err != nil {
		return err
	}
	f.written += int64(len(f.packed))
	return out.Sync()
}

// update replaces a document.
func (f *fileStore) update(n int, document []byte) error {
	packed, err := os.ReadFile(f.name(n / f.perFile))
	if err != nil {
		return err
	}
	plain, err := s2.Decode(f.plain[:cap(f.plain)], packed)
	if err != nil {
		return err
	}
	f.plain = plain
	lines := bytes.Split(bytes.TrimSuffix(plain, []byte{'\n'}), []byte{'\n'})
	at := n % f.perFile
	if at >= len(lines) {
		return fmt.Errorf("%s: %d documents, want more than %d", f.name(n/f.perFile), len(lines), at)
	}
	lines[at] = document
	return f.write(n/f.perFile, append(bytes.Join(lines, []byte{'\n'}), '\n'))
}

func (s settings) rewriteFiles() (_ figures, err error) {
	f := &fileStore{dir: filepath.Join(s.dir, "files"), perFile: s.perFile}
	if err := os.Mkdir(f.dir, 0o755); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(f.dir)) }()
	for file := 0; file*s.perFile < s.documents; file++ {
		var plain []byte
		for n := file * s.perFile; n < min(s.documents, (file+1)*s.perFile); n++ {
			plain = append(appendDocument(plain, n, 0), '\n')
		}
		if err := f.write(file, plain); err != nil {
			return nil, err
		}
	}
	f.written = 0
	var document []byte
	count, elapsed, err := s.updateFor(func(n, version int) error {
		document = appendDocument(document[:0], n, version)
		return f.update(n, document)
	})
	if err != nil {
		return nil, err
	}
	return figures{"updates/s": float64(count) / elapsed.Seconds(), "written bytes": float64(f.written) / float64(count)}, nil
}

func (s settings) appendToQueue() (_ figures, err error) {
	dir := filepath.Join(s.dir, "queue")
	w, err := queue.OpenWriter(dir, nil)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, w.Close(), os.RemoveAll(dir)) }()
	var document []byte
	put := func(n, version int) error {
		document = appendDocument(document[:0], n, version)
		_, err := w.Append([]byte(documentID(n)), document)
		return err
	}
	for n := range s.documents {
		if err := put(n, 0); err != nil {
			return nil, err
		}
	}
	if err := w.Flush(); err != nil {
		return nil, err
	}
	before, err := files.Bytes(dir, "")
	if err != nil {
		return nil, err
	}
	started := time.Now()
	count, _, err := s.updateFor(func(n, version int) error {
		if version%flushEvery == 0 {
			if err := w.Flush(); err != nil {
				return err
			}
		}
		return put(n, version)
	})
	if err != nil {
		return nil, err
	}
	if err := w.Flush(); err != nil {
		return nil, err
	}
	elapsed := time.Since(started)
	after, err := files.Bytes(dir, "")
	return figures{"updates/s": float64(count) / elapsed.Seconds(), "written bytes": float64(after-before) / float64(count)}, err
}

// updateFor updates random documents for s.duration. The version is the number of the update.
func (s settings) updateFor(update func(n, version int) error) (count int, elapsed time.Duration, err error) {
	random := rand.New(rand.NewPCG(7, 7))
	start := time.Now()
	for elapsed < s.duration {
		count++
		if err := update(random.IntN(s.documents), count); err != nil {
			return 0, 0, err
		}
		elapsed = time.Since(start)
	}
	return count, elapsed, nil
}
