package queue

import (
	"errors"
	"time"
)

// askRewrite looks for the next block in the rewrite that takes the place of the
// segment, if there is one. A segment that is being read already is read as far
// as it goes; now and then it is looked whether it has been repaired, so that it
// goes no further.
func (t *tailer) askRewrite(b *tailBlock) (bool, error) {
	if t.rewrite == nil {
		if t.files[0].file != nil || t.files[1].file != nil {
			if now := time.Now(); now.Before(t.rewriteDue) {
				return false, nil
			}
		}
		t.rewriteDue = time.Now().Add(rewriteInterval)
		s, _, err := t.r.openCovering(t.segment)
		if err != nil || s == nil {
			return false, err
		}
		t.rewrite, t.caughtUp = s, false
		t.r.files.drop(s.header.rewrites)
	}
	s := t.rewrite
	if err := t.enterRewrite(s); err != nil {
		return false, err
	}
	t.queue, t.known = s.header.queue, true
	place := Address{Segment: t.segment, Block: uint32(t.offset)}
	t.files[0].close()
	t.files[1].close()
	for i := s.relocations.from(place); i < s.relocations.count(); i++ {
		at, offset := s.relocations.row(i)
		if _, err := s.frame(&b.block, offset); err != nil {
			return false, err
		}
		b.at, b.end = b.origin(at)
		if b.at != at {
			return false, s.corruption(offset, errors.New("block is not the one that the relocations name"))
		}
		b.first, b.queue = 0, s.header.queue
		for at == place && b.first < b.count && b.index(b.first) < t.index {
			b.first++
		}
		t.segment, t.offset, t.index = at.Segment, int64(b.end), 0
		if b.first < b.count {
			t.chainKnown, t.previousKnown = false, false
			t.unchanged = time.Time{}
			return true, nil
		}
	}
	t.segment, t.offset, t.index, t.chainKnown = s.header.rewrites.last+1, 0, 0, false
	t.previous, t.previousKnown = s.relocations.last, true
	t.leaveRewrite()
	return false, nil
}

// rewriteInterval is how often it is looked whether there is a rewrite of the
// segment that is being read.
const rewriteInterval = time.Second

// enterRewrite is enter for a rewrite: only its first segment has a segment
// before that its header knows.
func (t *tailer) enterRewrite(s *segmentFile) error {
	known := t.previousKnown
	t.previousKnown = known && t.segment == s.header.rewrites.first
	err := t.enter(s)
	t.previousKnown = known
	return err
}

func (t *tailer) leaveRewrite() {
	if t.rewrite != nil {
		t.rewrite.file.Close()
		t.rewrite = nil
	}
}
