package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"docstore/internal/cli"
	"docstore/internal/vfs"
)

// input is a file of lines, or standard input.
type input struct {
	name   string // for people
	stdin  bool
	stable bool // a regular file, which can be read from the middle again
	size   int64
	head   []byte // the first bytes of a stable input, to know it by
	from   cursor // where to begin
}

// standardInput is the argument that stands for it.
const standardInput = "-"

// listInputs looks at every argument, so that a wrong name is found before
// anything is appended. No argument means standard input.
func listInputs(args []string) ([]*input, error) {
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
			inputs = append(inputs, &input{name: "standard input", stdin: true})
			continue
		}
		in, err := inspect(arg)
		if err != nil {
			return nil, err
		}
		inputs = append(inputs, in)
	}
	return inputs, nil
}

func inspect(path string) (*input, error) {
	mode, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if mode.IsDir() {
		return nil, fmt.Errorf("%s is a directory; name the files in it", path)
	}
	in := &input{name: path, stable: mode.Mode().IsRegular()}
	if !in.stable {
		return in, nil
	}
	info, err := vfs.OS.Stat(path)
	if err != nil {
		return nil, err
	}
	in.size = info.Size
	in.from.File = info.ID
	if in.from.Path, err = filepath.Abs(path); err != nil {
		return nil, err
	}
	return in, in.readHead(path)
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

// resume drops what has been read of the inputs up to the cursor: the files
// before the cursor's, and the beginning of that one. What a pipe brings is new
// each time and stays.
func resume(inputs []*input, at cursor) ([]*input, error) {
	var rest []*input
	for i, in := range inputs {
		if in.stable && at.sameFile(in.name, in.from.File) {
			return append(rest, inputs[i:]...), in.goOn(at)
		}
		if !in.stable {
			rest = append(rest, in)
		}
	}
	if !at.AtEnd {
		return nil, fmt.Errorf("the last run ended in the middle of %s, behind line %d, and that file is not among those given; "+
			"give it before new ones, or leave --resume out", at.describe(), at.Lines)
	}
	return inputs, nil
}

// goOn sets the input to begin at the cursor.
func (in *input) goOn(at cursor) error {
	file, err := vfs.OS.Open(in.name)
	if err != nil {
		return err
	}
	defer file.Close()
	next, err := at.check(file)
	if err != nil {
		return fmt.Errorf("%s: cannot go on behind line %d, at byte %d: %w; give the file as it was, or leave --resume out",
			in.name, at.Lines, at.Offset, err)
	}
	in.from.Offset, in.from.Lines, in.from.Head = next, at.Lines, at.Head
	return nil
}

// open returns the bytes from where the input begins.
func (in *input) open(stdin io.Reader) (io.ReadCloser, error) {
	if in.stdin {
		return io.NopCloser(stdin), nil
	}
	file, err := os.Open(in.name)
	if err != nil {
		return nil, err
	}
	if in.stable {
		if _, err := file.Seek(in.from.Offset, io.SeekStart); err != nil {
			return nil, errors.Join(err, file.Close())
		}
	}
	return file, nil
}

// totalBytes is how much there is to read; 0 if nobody knows.
func totalBytes(inputs []*input) int64 {
	var total int64
	for _, in := range inputs {
		if !in.stable {
			return 0
		}
		total += in.size - in.from.Offset
	}
	return total
}
