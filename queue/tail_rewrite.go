package queue

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// rewriteInterval is the interval at which the tail looks for a rewrite of the segment
// that it reads.
const rewriteInterval = time.Second

// nextInRewrite looks for the next block in the rewrite that replaces the segment, if
// there is one. While the tail reads the segment's own file, it looks for a rewrite
// every rewriteInterval: the segment may have been repaired or truncated.
func (t *tailer) nextInRewrite(b *tailBlock) (bool, error) {
	if t.rewrite == nil {
		now := time.Now()
		if (t.files[0].file != nil || t.files[1].file != nil) && now.Before(t.rewriteDue) {
			return false, nil
		}
		t.rewriteDue = now.Add(rewriteInterval)
		if err := t.findRewrite(&b.block); err != nil || t.rewrite == nil {
			return false, err
		}
	}
	s := t.rewrite
	t.queue, t.known = s.header.queue, true
	place := Address{Segment: t.segment, Block: uint32(t.offset)}
	t.files[0].close()
	t.files[1].close()
	for i := s.relocations.from(place); i < s.relocations.count(); i++ {
		at, err := s.relocatedBlock(&b.block, i)
		if err != nil {
			return false, err
		}
		b.at, b.next = at, s.afterBlock(&b.block, at)
		b.first, b.queue, b.file = 0, s.header.queue, s.header.placeFile()
		for at == place && b.first < b.count && b.index(b.first) < t.index {
			b.first++
		}
		b.proof = Proof{Footer: s.before(at.Segment).half(), Chain: b.chain()}
		t.segment, t.offset, t.index = at.Segment, int64(b.next.Block), b.next.Index
		t.previous, t.chain = b.proof.Footer, b.proof.Chain
		if b.first < b.count {
			t.unchanged = time.Time{}
			return true, nil
		}
	}
	t.moveTo(s.header.rewrites.last+1, s.digest())
	t.closeRewrite()
	return false, nil
}

// findRewrite opens the rewrite that replaces the segment, if there is one, and checks
// that it continues the entries before the tail's place.
func (t *tailer) findRewrite(b *block) error {
	l, err := t.r.list()
	if errors.Is(err, fs.ErrNotExist) {
		return nil // the directory has not arrived yet
	}
	if err != nil {
		return err
	}
	s, damage, err := l.openCovering(t.r.options.FS, t.r.dir, t.segment)
	if err != nil {
		return err
	}
	if err = t.checkOutdated(&l, s, damage); err == nil {
		err = t.checkTruncated(&l, s)
	}
	if err == nil && s != nil {
		if err = t.checkContinues(s); err == nil {
			err = t.checkProof(s, b)
		}
		if err == nil && t.onRewrite != nil {
			err = t.onRewrite(describeRewrite(s), Address{Segment: t.segment, Block: uint32(t.offset), Index: t.index})
		}
	}
	if err != nil || s == nil {
		if s != nil {
			s.close()
		}
		return err
	}
	t.rewrite, t.caughtUp = s, false
	t.r.files.drop(s.header.rewrites)
	return nil
}

// checkOutdated returns an error if the tail would read files that a rewrite replaces
// because the rewrite is damaged or quarantined, while a later rewrite exists. Such files
// may contain documents whose deletes are missing in the later rewrite: compaction drops
// a delete after the files with the document were removed at the source. next is the
// rewrite to be read, which may be nil.
func (t *tailer) checkOutdated(l *listing, next *segmentFile, damage error) error {
	var run rewriteRun
	if next != nil {
		run = next.header.rewrites
	}
	better := func(name FileName) bool {
		return name.Generation > run.generation && name.First <= t.segment && t.segment <= name.Last
	}
	for _, name := range l.ignored {
		if f, _ := parseIgnoredName(name); better(f) && strings.HasSuffix(name, QuarantineSuffix) {
			path := filepath.Join(t.r.dir, name)
			damage = &CorruptionError{Path: path, Segment: t.segment, Reason: "the rewrite is quarantined and has not been copied again"}
		}
	}
	if damage == nil || !slices.ContainsFunc(l.rewrites, func(r rewriteRun) bool { return r.first > t.segment }) {
		return nil
	}
	return damage
}

// checkTruncated returns a *TruncatedError if entries before the last delivered position
// were truncated, according to the rewrite to be read, which may be nil, or to that of
// the position's segment.
func (t *tailer) checkTruncated(l *listing, next *segmentFile) error {
	at := t.delivered.Next
	if next != nil {
		if err := t.truncatedBy(next); err != nil || next.header.rewrites.covers(at.Segment) {
			return err
		}
	}
	runs := l.covering(at.Segment)
	if len(runs) == 0 || runs[0] == t.examined {
		return nil
	}
	s, _, err := l.openCovering(t.r.options.FS, t.r.dir, at.Segment)
	if err != nil || s == nil {
		return err
	}
	defer s.close()
	if err := t.truncatedBy(s); err != nil {
		return err
	}
	t.examined = s.header.rewrites
	return nil
}

func (t *tailer) truncatedBy(s *segmentFile) error {
	if t.known && s.header.queue != t.queue {
		return s.forked(t.queue)
	}
	at := t.delivered.Next
	for _, r := range s.relocations.truncated {
		if r.from.Compare(at) < 0 && r.holds(at) {
			t.r.files.drop(s.header.rewrites) // they have the truncated entries
			return &TruncatedError{Position: t.delivered, From: r.from, To: r.to}
		}
	}
	return nil
}

// checkProof compares the tail's place with the record of its segment in a rewrite: the end of
// the segment, and the checksum of the original block at the place or before it. If the
// rewrite has left out that block and the segment continues after it, only the previous
// segments are compared.
func (t *tailer) checkProof(s *segmentFile, b *block) error {
	place := Address{Segment: t.segment, Block: uint32(t.offset)}
	o := s.relocations.originals[t.segment-s.header.rewrites.first]
	switch {
	case t.offset == 0:
		return nil
	case o.end > 0 && (place.Block > o.end || place.Block == o.end && t.index > 0):
		return t.diverged(s, "the last block of the segment ends at %d", o.end)
	case t.chain == 0:
		return nil
	case place.Block == o.end && o.chain != t.chain:
		return t.forked(s, errors.New("the last block of the segment is another one"))
	}
	i := s.relocations.from(place)
	if t.index == 0 {
		i-- // the previous block
	}
	if i < 0 || i == s.relocations.count() {
		return nil
	}
	at, err := s.relocatedBlock(b, i)
	if err != nil {
		return err
	}
	_, end := b.origin(at)
	covers := at.Segment == t.segment && (t.index > 0 && at == place || t.index == 0 && end >= place.Block)
	if covers && (b.chain() != 0 && b.chain() != t.chain || t.index == 0 && end > place.Block) {
		return t.forked(s, fmt.Errorf("block %s is another one", at))
	}
	return nil
}

func (t *tailer) closeRewrite() {
	if t.rewrite != nil {
		t.rewrite.close()
		t.rewrite = nil
	}
}
