package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"
	"unicode/utf8"

	"docstore/ingest"
	"docstore/internal/vfs"
)

const (
	// badLinesName is the default file of --bad-lines in the queue's directory, which the
	// updater may write to. docstore-sync does not copy it.
	badLinesName = "bad-lines.ndjson"
	// maxBadLinesBytes is the size at which the file is renamed to FILE.1, replacing an
	// earlier one. It limits the disk space that invalid input can fill.
	maxBadLinesBytes = 64 << 20
	// maxBadText is the maximum size of the text kept of an invalid record.
	maxBadText = 64 << 10
)

// badLines is the dead-letter file, which keeps the records that append skips.
//
// A record is durable in it before any later record is appended to the queue, whose cursor
// then passes the record. After a crash the records after the cursor are read again, so the
// file may contain a record twice.
type badLines struct {
	fsys     vfs.FS
	path     string
	maxBytes int64
	buffer   []byte // lines to be written
}

// badLine is a line of the file.
type badLine struct {
	Time    time.Time `json:"time"`
	At      string    `json:"at"` // input and line
	Problem string    `json:"problem"`
	Bytes   int       `json:"bytes"` // of the record
	Text    string    `json:"text,omitempty"`
	Base64  []byte    `json:"text_base64,omitempty"` // of text that is not UTF-8
}

// add adds a record; sync makes it durable.
func (b *badLines) add(now time.Time, place string, r *ingest.Record) error {
	line := badLine{Time: now.UTC(), At: place, Problem: r.Problem.Error(), Bytes: len(r.Document)}
	text := r.Document[:min(len(r.Document), maxBadText)]
	if utf8.Valid(text) {
		line.Text = string(text)
	} else {
		line.Base64 = text
	}
	encoded, err := json.Marshal(line)
	b.buffer = append(append(b.buffer, encoded...), '\n')
	return err
}

// sync makes the added lines durable. It opens the file each time, so an operator may move
// the file away at any time.
func (b *badLines) sync() error {
	dir := filepath.Dir(b.path)
	info, err := b.fsys.Stat(b.path)
	size := info.Size
	if size > 0 && size+int64(len(b.buffer)) > b.maxBytes {
		if err := b.fsys.Rename(b.path, b.path+".1"); err != nil {
			return err
		}
		size, err = 0, fs.ErrNotExist
	}
	var file vfs.File
	if errors.Is(err, fs.ErrNotExist) {
		file, err = b.fsys.Create(b.path)
	} else if err == nil {
		file, err = b.fsys.OpenAppend(b.path)
	}
	if err != nil {
		return err
	}
	err = b.write(file, size)
	return errors.Join(err, file.Close(), b.fsys.SyncDir(dir))
}

// write appends the added lines to a file of a given size. It first terminates a line that
// a crash has torn.
func (b *badLines) write(file vfs.File, size int64) error {
	last := []byte{'\n'}
	if size > 0 {
		if _, err := file.ReadAt(last, size-1); err != nil {
			return err
		}
	}
	if last[0] != '\n' {
		b.buffer = append([]byte{'\n'}, b.buffer...)
	}
	if _, err := file.Write(b.buffer); err != nil {
		return err
	}
	b.buffer = b.buffer[:0]
	return file.Sync()
}

// keepBad makes the batch's invalid records durable in the dead-letter file, before any
// record of the batch is appended.
func (a *appender) keepBad(b *batch) error {
	if a.badLines == nil {
		return nil
	}
	first, count := -1, 0
	for i := range b.Records {
		r := &b.Records[i]
		if r.Problem == nil {
			continue
		}
		if err := a.badLines.add(a.env.Now(), b.Place(i), r); err != nil {
			return fmt.Errorf("keeping the invalid record %s: %w", b.Place(i), err)
		}
		if count++; first < 0 {
			first = i
		}
	}
	if count == 0 {
		return nil
	}
	if err := a.badLines.sync(); err != nil {
		return fmt.Errorf("keeping invalid records in %s: %w; free space, or choose another file with --bad-lines", a.badLines.path, err)
	}
	a.env.Log.Warn("invalid records were kept in the dead-letter file", "records", count, "first", b.Place(first),
		"problem", b.Records[first].Problem.Error(), "file", a.badLines.path)
	return nil
}
