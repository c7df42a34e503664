package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"docstore/cmd/internal/records"
	"docstore/internal/vfs"
)

// resume drops the part of the inputs before the cursor: earlier inputs, and the beginning
// of the cursor's. A pipe has new content each time and is kept.
func resume(inputs []*input, at cursor) ([]*input, error) {
	var rest []*input
	for i, in := range inputs {
		switch {
		case !in.stable:
			rest = append(rest, in)
		case in.follow && at.Path == in.from.Path && at.File != in.from.File:
			if old, err := findReplaced(in, at); err != nil || old != nil {
				return append(append(rest, old), inputs[i:]...), err
			}
			return append(rest, inputs[i:]...), in.resumeAt(at)
		case at.within(in):
			return append(rest, inputs[i:]...), in.resumeAt(at)
		}
	}
	if !at.AtEnd {
		return nil, fmt.Errorf("the last run ended in the middle of %s, after line %d, and that file is not among the arguments; "+
			"give it before new ones, or omit --resume", at.describe(), at.Lines)
	}
	return inputs, nil
}

// findReplaced returns the renamed file that was read under the name of a followed file, as
// for rotated logs, nil if there is none.
func findReplaced(in *input, at cursor) (*input, error) {
	dir := filepath.Dir(in.from.Path)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, entry := range entries {
		path := filepath.Join(dir, entry.Name())
		info, err := vfs.OS.Stat(path)
		if err != nil || info.ID != at.File || at.checkHead(path) != nil {
			continue
		}
		old, err := inspect(path, in.format)
		if err != nil {
			return nil, err
		}
		return old, old.resumeAt(at)
	}
	return nil, nil
}

// within reports whether the cursor refers to the input. For a file, the same file under
// another name counts; so does another file under the same name, which resumeAt then
// compares with the part read.
func (c *cursor) within(in *input) bool {
	if c.WholeFile != (in.format == formatFiles) {
		return false
	}
	if c.WholeFile {
		return strings.HasPrefix(c.Path, in.from.Path+string(filepath.Separator))
	}
	if c.Path == in.from.Path {
		return true
	}
	// Inode numbers are reused after a delete: compare the head.
	return c.File == in.from.File && c.File != (vfs.FileID{}) && c.checkHead(in.name) == nil
}

// resumeAt makes the input start at the cursor.
func (in *input) resumeAt(at cursor) error {
	if err := in.tryGoOn(at); err != nil {
		return fmt.Errorf("%s: cannot continue after line %d, at byte %d: %w; restore the file, or omit --resume",
			in.name, at.Lines, at.Offset, err)
	}
	return nil
}

func (in *input) tryGoOn(at cursor) error {
	switch {
	case in.format == formatFiles:
		in.skip = &at
		return nil
	case !in.seekable():
		in.skip = &at
		in.from.Offset, in.from.Lines, in.from.Head = at.Offset, at.Lines, at.Head
		return at.checkHead(in.name)
	}
	file, err := vfs.OS.Open(in.name)
	if err != nil {
		return err
	}
	defer file.Close()
	next, err := at.check(file)
	if err != nil {
		return err
	}
	in.from.Offset, in.from.Lines, in.from.Head = next, at.Lines, at.Head
	return nil
}

// skipTo skips the records up to the cursor.
func skipTo(stream records.Reader, at *cursor) error {
	for {
		record, err := stream.Next()
		switch {
		case errors.Is(err, io.EOF):
			return errChanged
		case err != nil:
			return err
		case record.End < at.Offset:
		case !at.Tail.isTailOf(record.Text):
			return errChanged
		default:
			return nil
		}
	}
}
