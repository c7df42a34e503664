package ingest

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
	"io/fs"
	"time"

	"docstore/internal/vfs"
	"docstore/queue"
)

// keptBufferBytes is the size of the buffers for the file of keptRecords.
const keptBufferBytes = 256 << 10

// keptRecords are records in a temporary file. Each has the place, id and document, with the
// length of each before them, and the expiry.
type keptRecords struct {
	fs   vfs.FS
	name string
	file vfs.File
	w    *bufio.Writer
	end  uint64 // of the records
	n    int    // records
}

// keepRecords makes an empty file. It replaces that of a process that was killed.
func keepRecords(fsys vfs.FS, name string) (*keptRecords, error) {
	if err := fsys.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	file, err := fsys.Create(name)
	if err != nil {
		return nil, err
	}
	return &keptRecords{fs: fsys, name: name, file: file, w: bufio.NewWriterSize(file, keptBufferBytes)}, nil
}

// close removes the file.
func (k *keptRecords) close() error { return errors.Join(k.file.Close(), k.fs.Remove(k.name)) }

// put adds a record with its place and returns its mark.
func (k *keptRecords) put(place string, r *Record) (mark uint64, err error) {
	mark = k.end
	k.n++
	expires := int64(0)
	if !r.Expires.IsZero() {
		expires = r.Expires.UnixNano()
	}
	b := binary.AppendUvarint(k.w.AvailableBuffer(), uint64(len(place)))
	b = binary.AppendUvarint(b, uint64(len(r.ID)))
	b = binary.AppendUvarint(b, uint64(len(r.Document)))
	b = append(binary.AppendVarint(b, expires), place...)
	b = append(b, r.ID...)
	k.end += uint64(len(b) + len(r.Document))
	if _, err = k.w.Write(b); err == nil {
		_, err = k.w.Write(r.Document)
	}
	return mark, err
}

// at returns the record with a mark and its place.
func (k *keptRecords) at(mark uint64) (place string, r queue.Record, err error) {
	if err := k.w.Flush(); err != nil {
		return "", r, err
	}
	reader := keptReader{in: bufio.NewReader(io.NewSectionReader(k.file, int64(mark), int64(k.end-mark)))}
	return reader.next()
}

// each calls fn for the records. Their bytes are valid until it returns.
func (k *keptRecords) each(fn func(queue.Record) error) error {
	if err := k.w.Flush(); err != nil {
		return err
	}
	reader := keptReader{in: bufio.NewReaderSize(io.NewSectionReader(k.file, 0, int64(k.end)), keptBufferBytes)}
	for range k.n {
		_, r, err := reader.next()
		if err == nil {
			err = fn(r)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// keptReader reads records. It reuses the memory of the last one.
type keptReader struct {
	in     *bufio.Reader
	buffer []byte
}

// next returns the next record.
func (k *keptReader) next() (place string, r queue.Record, err error) {
	var lengths [3]uint64
	for i := range lengths {
		if lengths[i], err = binary.ReadUvarint(k.in); err != nil {
			return "", r, err
		}
	}
	expires, err := binary.ReadVarint(k.in)
	if err != nil {
		return "", r, err
	}
	if n := int(lengths[0] + lengths[1] + lengths[2]); cap(k.buffer) < n {
		k.buffer = make([]byte, n)
	}
	b := k.buffer[:lengths[0]+lengths[1]+lengths[2]]
	if _, err := io.ReadFull(k.in, b); err != nil {
		return "", r, err
	}
	place, b = string(b[:lengths[0]]), b[lengths[0]:]
	r.ID, r.Document = b[:lengths[1]:lengths[1]], b[lengths[1]:]
	if expires != 0 {
		r.Expires = time.Unix(0, expires)
	}
	return place, r, nil
}
