package ingest

import (
	"encoding/json"
	"errors"
	"io/fs"
	"path/filepath"
	"time"
	"unicode/utf8"

	"docstore/internal/vfs"
)

const (
	// maxDeadLettersBytes is the size at which a dead-letter file is renamed to FILE.1,
	// replacing an earlier one. It limits the disk space that invalid input can fill.
	maxDeadLettersBytes = 64 << 20
	// maxDeadText is the maximum size of the text kept of an invalid record.
	maxDeadText = 64 << 10
)

// DeadLetters is a file that keeps the invalid records that an Appender skips.
//
// A record is durable in it before any later record is appended to the queue, whose cursor
// then passes the record. After a crash the records after the cursor are read again, so the
// file may contain a record twice.
type DeadLetters struct {
	fsys     vfs.FS
	path     string
	maxBytes int64
	buffer   []byte // lines to be written
}

// NewDeadLetters returns the file of a path. It is created with the first record.
func NewDeadLetters(fsys vfs.FS, path string) *DeadLetters {
	return &DeadLetters{fsys: fsys, path: path, maxBytes: maxDeadLettersBytes}
}

// DeadLetter is a line of the file.
type DeadLetter struct {
	Time    time.Time `json:"time"`
	At      string    `json:"at"` // input and line
	Problem string    `json:"problem"`
	Bytes   int       `json:"bytes"` // of the record
	Text    string    `json:"text,omitempty"`
	Base64  []byte    `json:"text_base64,omitempty"` // of text that is not UTF-8
}

// add adds a record; sync makes it durable.
func (d *DeadLetters) add(now time.Time, place string, r *Record) error {
	line := DeadLetter{Time: now.UTC(), At: place, Problem: r.Problem.Error(), Bytes: len(r.Document)}
	text := r.Document[:min(len(r.Document), maxDeadText)]
	if utf8.Valid(text) {
		line.Text = string(text)
	} else {
		line.Base64 = text
	}
	encoded, err := json.Marshal(line)
	d.buffer = append(append(d.buffer, encoded...), '\n')
	return err
}

// sync makes the added lines durable. It opens the file each time, so an operator may move
// the file away at any time.
func (d *DeadLetters) sync() error {
	dir := filepath.Dir(d.path)
	info, err := d.fsys.Stat(d.path)
	size := info.Size
	if size > 0 && size+int64(len(d.buffer)) > d.maxBytes {
		if err := d.fsys.Rename(d.path, d.path+".1"); err != nil {
			return err
		}
		size, err = 0, fs.ErrNotExist
	}
	var file vfs.File
	if errors.Is(err, fs.ErrNotExist) {
		file, err = d.fsys.Create(d.path)
	} else if err == nil {
		file, err = d.fsys.OpenAppend(d.path)
	}
	if err != nil {
		return err
	}
	err = d.write(file, size)
	return errors.Join(err, file.Close(), d.fsys.SyncDir(dir))
}

// write appends the added lines to a file of a given size. It first terminates a line that
// a crash has torn.
func (d *DeadLetters) write(file vfs.File, size int64) error {
	last := []byte{'\n'}
	if size > 0 {
		if _, err := file.ReadAt(last, size-1); err != nil {
			return err
		}
	}
	if last[0] != '\n' {
		d.buffer = append([]byte{'\n'}, d.buffer...)
	}
	if _, err := file.Write(d.buffer); err != nil {
		return err
	}
	d.buffer = d.buffer[:0]
	return file.Sync()
}
