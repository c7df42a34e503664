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

// resume drops what has been read of the inputs up to the cursor: the inputs
// before the cursor's, and the beginning of that one. What a pipe brings is new
// each time and stays.
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
			return append(rest, inputs[i:]...), in.goOn(at)
		case at.within(in):
			return append(rest, inputs[i:]...), in.goOn(at)
		}
	}
	if !at.AtEnd {
		return nil, fmt.Errorf("the last run ended in the middle of %s, behind line %d, and that file is not among those given; "+
			"give it before new ones, or leave --resume out", at.describe(), at.Lines)
	}
	return inputs, nil
}

// findReplaced looks beside a followed file for the one that was read under its
// name and has been renamed since, as rotated logs are. It is nil if there is
// none.
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
		return old, old.goOn(at)
	}
	return nil, nil
}

// within tells whether the cursor is a place in the input. For a file, the same
// one under another name counts; so does another one under the same name,
// because it takes the place of the one that was read: goOn then finds out what
// has become of that.
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
	// An inode number is given anew when its file is deleted: the head tells.
	return c.File == in.from.File && c.File != (vfs.FileID{}) && c.checkHead(in.name) == nil
}

// goOn sets the input to begin at the cursor.
func (in *input) goOn(at cursor) error {
	if err := in.tryGoOn(at); err != nil {
		return fmt.Errorf("%s: cannot go on behind line %d, at byte %d: %w; give the file as it was, or leave --resume out",
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

// skipTo passes over the records up to the cursor.
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
