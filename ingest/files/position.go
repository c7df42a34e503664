package files

import (
	"cmp"
	"errors"
	"fmt"

	"docstore/ingest"
)

// position is a cursor and its place among the inputs.
type position struct {
	index int    // of the input; -1: before all of them
	in    *input // a copy that starts behind the cursor; nil: old does
	old   *input // the renamed file that was read under the name of the input
	// between are the files that had the name of the input after old.
	between []*input
	at      cursor
}

// generation tells files apart that had the same name, as of a log that is rotated.
type generation int

const (
	unordered generation = 0       // was replaced, and its new name does not tell when
	current   generation = 1 << 16 // had the name when the opener was made; its replacements follow
)

// String describes the position for messages.
func (p *position) String() string {
	switch {
	case p.index >= 0:
		return cmp.Or(p.old, p.in).place(p.at)
	case p.at == cursor{}:
		return "the start"
	}
	return fmt.Sprintf("%s:%d", p.at.describe(), p.at.Lines)
}

func (p *position) generation() generation {
	if p.old != nil {
		return p.old.gen
	}
	return current
}

// Position implements ingest.Opener. It fails if the part of the file before the cursor has
// changed.
func (o *Opener) Position(stored []byte) (ingest.Position, error) {
	p, err := o.position(stored)
	if err != nil {
		return nil, err
	}
	return p, nil
}

func (o *Opener) position(stored []byte) (*position, error) {
	p := &position{index: -1}
	if len(stored) == 0 {
		return p, nil
	}
	var err error
	if p.at, err = parseCursor(stored); err != nil {
		return nil, err
	}
	return p, p.find(o.inputs)
}

// Earliest implements ingest.Opener. A shard without records has no cursor: if the log was rotated since
// the others have read it, the start is that of the renamed file, whose other lines it lacks.
func (o *Opener) Earliest(cursors [][]byte) ([]byte, error) {
	if len(cursors) == 0 {
		return nil, nil
	}
	var first, read *position // read: of those that are not empty
	var earliest []byte
	for _, c := range cursors {
		p, err := o.position(c)
		if err != nil {
			return nil, err
		}
		order := -1
		if first != nil {
			if order, err = p.compare(first); err != nil {
				return nil, err
			}
		}
		if order < 0 {
			first, earliest = p, c
		}
		if p.index >= 0 && read != nil {
			if order, err = p.compare(read); err != nil {
				return nil, err
			}
		}
		if p.index >= 0 && (read == nil || order < 0) {
			read = p
		}
	}
	if first.index < 0 && read != nil && read.index == 0 && read.old != nil {
		start := cursor{Path: read.at.Path, File: read.at.File, Head: read.at.Head}
		return start.append(nil), nil
	}
	return earliest, nil
}

// compare returns the order of two positions.
func (p *position) compare(q *position) (int, error) {
	same := p.generation() == q.generation() || min(p.generation(), q.generation()) == unordered
	if p.old != nil && q.old != nil && p.index == q.index && p.at.File != q.at.File && same {
		return 0, errors.New("the cursors are in two files that were replaced while append was not running, and their order is unknown: " +
			p.String() + " and " + q.String() + "; append the rest of both by name, then use --resume=false")
	}
	return cmp.Or(cmp.Compare(p.index, q.index), cmp.Compare(p.generation(), q.generation()), p.at.compare(&q.at)), nil
}

// includes reports whether a position of an input is not behind p.
func (p *position) includes(in *input, at *cursor) bool {
	return in.stable && cmp.Or(cmp.Compare(in.index, p.index), cmp.Compare(in.gen, p.generation()), at.compare(&p.at)) <= 0
}

// compare compares cursors of the same input.
func (c *cursor) compare(d *cursor) int {
	if c.WholeFile {
		return comparePaths(c.Path, d.Path)
	}
	return cmp.Compare(c.Lines, d.Lines)
}
