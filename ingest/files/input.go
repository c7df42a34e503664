package files

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"time"

	"docstore/ingest/parquet"
	"docstore/ingest/records"
	"docstore/internal/eof"
	"docstore/internal/vfs"
)

// input is a file of records, standard input, or a directory of documents.
type input struct {
	index    int        // among the inputs
	gen      generation // of the file among those of the same name
	name     string     // for messages; of a file its path
	fs       vfs.FS     // of a file
	store    Store      // of an object; nil: a file
	stdin    bool
	stable   bool           // a regular file or a directory, which can be read from the middle again
	follow   bool           // keep reading as the file grows, then the file that replaces it
	format   records.Format // known once it is open
	encoding records.Encoding
	size     int64
	head     []byte  // the first bytes of a regular file, to identify it
	from     cursor  // where to start
	skip     *cursor // skip the records before it

	modified time.Time // of a followed file that was read to its end
	written  time.Time // last modification before a file or object was opened; zero: not known
}

func inspect(fsys vfs.FS, path string, format records.Format, encoding records.Encoding) (*input, error) {
	info, err := fsys.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.Dir != OfDirectories(format) {
		if info.Dir {
			return nil, fmt.Errorf("%s is a directory; name the files in it, or use --format files or json-files to append each as a document", path)
		}
		return nil, fmt.Errorf("%s is not a directory, as --format %s needs", path, format)
	}
	in := &input{gen: current, fs: fsys, name: path, format: format, encoding: encoding, stable: info.Dir}
	if !in.stable {
		if in.stable, err = isRegular(fsys, path); err != nil || !in.stable {
			return in, err
		}
	}
	in.from.File = info.ID
	if in.from.Path, err = filepath.Abs(path); err != nil || info.Dir {
		return in, err
	}
	in.size, in.written = info.Size, info.ModTime
	if err := in.readHead(context.Background()); err != nil {
		return nil, err
	}
	in.detect()
	return in, nil
}

// isRegular reports whether a file is neither a pipe nor a device.
func isRegular(fsys vfs.FS, path string) (bool, error) {
	if fsys != vfs.OS {
		return true, nil // it has no others
	}
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular(), err
}

func (in *input) readHead(ctx context.Context) error {
	file, err := in.readerAt(ctx)
	if err != nil {
		return err
	}
	defer file.Close()
	in.head = make([]byte, min(in.size, sampleBytes))
	if n, err := file.ReadAt(in.head, 0); n < len(in.head) {
		return fmt.Errorf("reading %s: its size is %d bytes, and a read of the first %d returns %d: %w", in.name, in.size, len(in.head), n, eof.Unexpected(err))
	}
	return nil
}

// detect determines the format that the first bytes tell.
func (in *input) detect() {
	switch {
	case in.format != records.FormatAuto:
	case bytes.HasPrefix(in.head, []byte(parquet.Magic)):
		in.format = Parquet
	case in.plain():
		in.format = records.Detect(in.name, in.head)
	}
}

// plain reports whether the offsets of records are those in the file: it is neither compressed nor
// in another encoding.
func (in *input) plain() bool { return !records.IsCompressed(in.head) && !in.encoding.Changes(in.head) }

// readerAt is a file that is read at any place.
type readerAt interface {
	io.ReaderAt
	io.Closer
}

func (in *input) readerAt(ctx context.Context) (readerAt, error) {
	if in.store != nil {
		return &objectAt{ctx, in.store, in.from.Path}, nil
	}
	return in.open()
}

// open opens the file that was inspected. A followed or rotated one may have been renamed since,
// and another may have its name: that is read later.
func (in *input) open() (vfs.File, error) {
	if in.from.File == (vfs.FileID{}) || !in.follow && in.gen == current {
		return in.fs.Open(in.name)
	}
	for path := in.name; ; {
		file, err := in.fs.Open(path)
		if err == nil {
			info, err := file.Stat()
			if err == nil && info.ID == in.from.File {
				return file, nil
			}
			if err := errors.Join(err, file.Close()); err != nil {
				return nil, err
			}
		} else if !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		files, err := neighbors(in.fs, in.from.Path)
		if err != nil {
			return nil, err
		}
		i := slices.IndexFunc(files, func(f neighbor) bool { return f.info.ID == in.from.File })
		if i < 0 {
			return nil, fmt.Errorf("%s was replaced before it was read, and the file that had the name is not in its directory: restore the file, or use --resume=false", in.name)
		}
		path = files[i].path
	}
}

// openAt returns a reader of the bytes from an offset on.
func (in *input) openAt(ctx context.Context, offset int64) (io.ReadCloser, error) {
	if in.store != nil {
		return in.store.Open(ctx, in.from.Path, offset, -1)
	}
	file, err := in.open()
	if err != nil {
		return nil, err
	}
	return &body{file, io.NewSectionReader(file, offset, math.MaxInt64-offset)}, nil
}

// body reads a file from an offset on.
type body struct {
	file vfs.File
	io.Reader
}

// Close implements io.Closer.
func (b *body) Close() error { return b.file.Close() }

func (in *input) setFollow() error {
	switch {
	case in.stdin:
		return nil // it is read until it ends anyway
	case OfDirectories(in.format) || !in.stable:
		return fmt.Errorf("%s is not a regular file, as --follow needs; a pipe is always read until it ends", in.name)
	case !in.plain() || in.format == records.FormatJSON || in.format == Parquet:
		return fmt.Errorf("%s cannot be followed: only uncompressed lines and rows of UTF-8 can be followed; omit --follow", in.name)
	}
	in.follow = true
	return nil
}

// seekable reports whether reading can start in the middle. Compressed and structured
// inputs are read again from their start.
func (in *input) seekable() bool {
	return in.stable && in.format == records.FormatNDJSON && in.plain()
}

// live reports whether the input may grow while it is read.
func (in *input) live() bool { return !in.stable || in.follow }

// atEnd reports whether a record that ends at the offset is the last one written so far.
func (in *input) atEnd(stream *records.Stream, offset int64) bool {
	if !in.follow {
		return in.stable && stream.AtEnd()
	}
	if stream.Waiting() {
		return false
	}
	info, err := in.fs.Stat(in.name)
	return err == nil && info.Size == offset
}

// place describes the place of a record for messages.
func (in *input) place(at cursor) string {
	switch in.format {
	case Directories, JSONFiles:
		return at.Path
	case records.FormatJSON:
		return fmt.Sprintf("%s: document %d", in.name, at.Lines)
	case Parquet:
		return fmt.Sprintf("%s: row %d", in.name, at.Lines)
	}
	return fmt.Sprintf("%s:%d", in.name, at.Lines)
}

// totalBytes returns the size of the inputs; 0 if it is unknown.
func totalBytes(inputs []*input) int64 {
	var total int64
	for _, in := range inputs {
		if in.size == 0 || in.follow || !in.plain() {
			return 0
		}
		total += in.size - in.from.Offset
	}
	return total
}
