package files

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"docstore/ingest/records"
	"docstore/internal/eof"
	"docstore/internal/vfs"
)

// find finds the input of the position's cursor, and makes a copy that starts there.
func (p *position) find(inputs []*input) error {
	for i, in := range inputs {
		replaced := in.follow && p.at.replacedBy(in)
		if !in.stable || !replaced && !p.at.within(in) {
			continue
		}
		if replaced {
			var err error
			if p.old, err = findReplaced(in, p.at); err != nil {
				return err
			}
			switch {
			case p.old != nil:
				p.index = i
				return p.findBetween(in)
			case p.at.Path != in.from.Path:
				return p.findRemoved(in)
			}
		}
		p.index = i
		own := *in
		p.in = &own
		return p.in.resumeAt(context.Background(), p.at)
	}
	return p.requireEnd()
}

// requireEnd returns an error unless the file of the position, which is not among the inputs, was
// read to its end.
func (p *position) requireEnd() error {
	if p.at.AtEnd {
		return nil
	}
	return fmt.Errorf("the last run ended in the middle of %s, after line %d, and that file is not among the arguments; "+
		"give it before new ones, or use --resume=false", p.at.describe(), p.at.Lines)
}

// findRemoved returns an error if files may have had the name of the input after the file of the
// position, a rotated one that is not there any more.
func (p *position) findRemoved(in *input) error {
	if err := p.requireEnd(); err != nil {
		return err
	}
	_, err := between(in, p.at.File, time.Time{}, in.from.File)
	return err
}

// findBetween finds the files that replaced the file of the position before the input. Their
// generations, and that of old, count back from the input, so that those of several positions
// compare.
func (p *position) findBetween(in *input) (err error) {
	p.between, err = between(in, p.at.File, time.Time{}, in.from.File)
	first := in.gen - generation(len(p.between))
	for i, each := range p.between {
		each.gen = first + generation(i)
	}
	if _, named := rotationOf(filepath.Base(p.old.name), filepath.Base(in.from.Path)); named {
		p.old.gen = first - 1
	}
	return err
}

// within reports whether the cursor refers to the input. For a file, the same file under
// another name counts; so does another file under the same name, which resumeAt then
// compares with the part read.
func (c *cursor) within(in *input) bool {
	if c.WholeFile != OfDirectories(in.format) || c.Object {
		return false
	}
	if c.WholeFile {
		return strings.HasPrefix(c.Path, in.from.Path+string(filepath.Separator))
	}
	if c.Path == in.from.Path {
		return true
	}
	// Inode numbers are reused after a delete: compare the head.
	return c.File == in.from.File && c.File != (vfs.FileID{}) && in.checkHead(context.Background(), c) == nil
}

// replacedBy reports whether a followed input may have replaced the file of the cursor: that had
// the name of the input, or was read under the name that a rotation gave it.
func (c *cursor) replacedBy(in *input) bool {
	if c.Object || c.WholeFile || c.File == in.from.File {
		return false
	}
	_, rotated := rotationOf(filepath.Base(c.Path), filepath.Base(in.from.Path))
	return c.Path == in.from.Path || rotated && filepath.Dir(c.Path) == filepath.Dir(in.from.Path)
}

// resumeAt makes the input start at the cursor.
func (in *input) resumeAt(ctx context.Context, at cursor) error {
	if err := at.cannotContinue(in.tryResumeAt(ctx, at)); err != nil {
		return fmt.Errorf("%s: %w", in.name, err)
	}
	return nil
}

// cannotContinue adds to an error that reading cannot continue at the cursor, and what to do.
func (c *cursor) cannotContinue(err error) error {
	if err == nil {
		return nil
	}
	remedy := "restore the file, or use --resume=false"
	if c.Object {
		remedy = "restore it, or rename it, so that it is read as a new one, or read all objects again with --resume=false"
	}
	return fmt.Errorf("cannot continue after line %d, at byte %d: %w; %s", c.Lines, c.Offset, err, remedy)
}

func (in *input) tryResumeAt(ctx context.Context, at cursor) error {
	if at.Object {
		in.from.File.Device = at.File.Device
	}
	switch {
	case OfDirectories(in.format):
		in.skip = &at
		return nil
	case !in.seekable():
		in.skip = &at
		in.from.Offset, in.from.Lines, in.from.Head = at.Offset, at.Lines, at.Head
		return in.checkHead(ctx, &at)
	}
	file, err := in.readerAt(ctx)
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

// checkHead verifies the beginning of the file.
func (in *input) checkHead(ctx context.Context, at *cursor) error {
	file, err := in.readerAt(ctx)
	if err != nil {
		return err
	}
	defer file.Close()
	return checkSample(file, 0, at.Head)
}

// skipTo skips the records up to the cursor.
func skipTo(stream records.Reader, at *cursor) error {
	var hash uint64
	for {
		record, err := stream.Next()
		if err == nil && at.Object {
			hash = addHash(hash, record.Text)
		}
		switch {
		case eof.Is(err):
			return errChanged
		case err != nil:
			return err
		case record.End < at.Offset:
		case !at.Tail.isTailOf(record.Text), at.Object && at.File.Device != 0 && at.File.Device != hash:
			return errChanged
		default:
			return nil
		}
	}
}
