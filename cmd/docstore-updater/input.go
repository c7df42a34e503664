package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"docstore/cmd/internal/cli"
	"docstore/cmd/internal/records"
	"docstore/internal/vfs"
)

// formatFiles is the format of a directory of documents.
const formatFiles records.Format = "files"

// input is a file of records, standard input, or a directory of documents.
type input struct {
	name   string // for messages
	stdin  bool
	stable bool           // a regular file or a directory, which can be read from the middle again
	follow bool           // keep reading as the file grows, then the file that replaces it
	format records.Format // known once it is open
	size   int64
	head   []byte  // the first bytes of a regular file, to identify it
	from   cursor  // where to start
	skip   *cursor // skip the records before it
	// fileWatcher waits for changes while a followed file is read.
	fileWatcher *fileWatcher
}

// standardInput is the argument for standard input.
const standardInput = "-"

// listInputs checks every argument before anything is appended. No argument means standard
// input.
func listInputs(args []string, format records.Format, follow bool) ([]*input, error) {
	if len(args) == 0 {
		args = []string{standardInput}
	}
	var inputs []*input
	for i, arg := range args {
		if arg == standardInput {
			for _, earlier := range inputs {
				if earlier.stdin {
					return nil, cli.Usagef("standard input is given twice (arguments %s)", args[:i+1])
				}
			}
			if format == formatFiles {
				return nil, cli.Usagef("--format files needs the names of directories")
			}
			inputs = append(inputs, &input{name: "standard input", stdin: true, format: format})
			continue
		}
		in, err := inspect(arg, format)
		if err != nil {
			return nil, err
		}
		inputs = append(inputs, in)
	}
	if follow {
		return inputs, inputs[len(inputs)-1].setFollow()
	}
	return inputs, nil
}

func inspect(path string, format records.Format) (*input, error) {
	mode, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if mode.IsDir() != (format == formatFiles) {
		if mode.IsDir() {
			return nil, fmt.Errorf("%s is a directory; name the files in it, or use --format files to append each as a document", path)
		}
		return nil, fmt.Errorf("%s is not a directory, as --format files needs", path)
	}
	in := &input{name: path, format: format, stable: mode.IsDir() || mode.Mode().IsRegular()}
	if !in.stable {
		return in, nil
	}
	info, err := vfs.OS.Stat(path)
	if err != nil {
		return nil, err
	}
	in.from.File = info.ID
	if in.from.Path, err = filepath.Abs(path); err != nil || mode.IsDir() {
		return in, err
	}
	in.size = info.Size
	if err := in.readHead(path); err != nil {
		return nil, err
	}
	if in.format == records.FormatAuto && !records.IsCompressed(in.head) {
		in.format = records.Detect(path, in.head)
	}
	return in, nil
}

func (in *input) readHead(path string) error {
	file, err := vfs.OS.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	in.head = make([]byte, min(in.size, sampleBytes))
	if n, err := file.ReadAt(in.head, 0); n < len(in.head) {
		return fmt.Errorf("reading %s: %w", path, err)
	}
	return nil
}

func (in *input) setFollow() error {
	switch {
	case in.stdin:
		return nil // it is read until it ends anyway
	case in.format == formatFiles || !in.stable:
		return fmt.Errorf("%s is not a regular file, as --follow needs; a pipe is always read until it ends", in.name)
	case records.IsCompressed(in.head) || in.format == records.FormatJSON:
		return fmt.Errorf("%s cannot be followed: only uncompressed lines and rows can be followed; omit --follow", in.name)
	}
	in.follow = true
	return nil
}

// seekable reports whether reading can start in the middle. Compressed and structured
// inputs are read again from their start.
func (in *input) seekable() bool {
	return in.stable && in.format == records.FormatNDJSON && !records.IsCompressed(in.head)
}

// open opens the records from the start position of the input.
func (in *input) open(ctx context.Context, stdin io.Reader, options *records.Options) (*records.Stream, io.Closer, error) {
	if in.stdin {
		stream, err := in.decode(stdin, options)
		return stream, io.NopCloser(nil), err
	}
	file, err := os.Open(in.name)
	if err != nil {
		return nil, nil, err
	}
	var bytes io.Reader = file
	if in.follow {
		bytes = &follower{ctx: ctx, file: file, path: in.name, fileWatcher: in.fileWatcher}
	}
	stream, err := in.openAt(file, bytes, options)
	if err != nil {
		return nil, nil, errors.Join(err, file.Close())
	}
	return stream, file, nil
}

func (in *input) openAt(file *os.File, bytes io.Reader, options *records.Options) (*records.Stream, error) {
	if in.seekable() {
		if _, err := file.Seek(in.from.Offset, io.SeekStart); err != nil {
			return nil, err
		}
		return &records.Stream{Reader: records.NewLines(bytes, maxRecordBytes, in.from.Offset, in.from.Lines)}, nil
	}
	stream, err := in.decode(bytes, options)
	if err != nil || in.skip == nil {
		return stream, err
	}
	if err := skipTo(stream, in.skip); err != nil {
		_ = stream.Close() // read errors were reported
		return nil, err
	}
	return stream, nil
}

func (in *input) decode(bytes io.Reader, options *records.Options) (*records.Stream, error) {
	stream, err := records.Open(bytes, in.name, in.format, maxRecordBytes, options)
	if err == nil {
		in.format = stream.Format
	}
	return stream, err
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
	info, err := os.Stat(in.name)
	return err == nil && info.Size() == offset
}

// place describes the place of a record for messages.
func (in *input) place(at cursor) string {
	switch in.format {
	case formatFiles:
		return at.Path
	case records.FormatJSON:
		return fmt.Sprintf("%s: element %d", in.name, at.Lines)
	}
	return fmt.Sprintf("%s:%d", in.name, at.Lines)
}

// totalBytes returns the size of the inputs; 0 if it is unknown.
func totalBytes(inputs []*input) int64 {
	var total int64
	for _, in := range inputs {
		if in.size == 0 || in.follow || records.IsCompressed(in.head) {
			return 0
		}
		total += in.size - in.from.Offset
	}
	return total
}
