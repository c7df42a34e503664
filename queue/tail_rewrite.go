package queue

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"docstore/queue/internal/segment"
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
		if err := t.findRewrite(&b.Block); err != nil || t.rewrite == nil {
			return false, err
		}
	}
	s := t.rewrite
	t.queue, t.known = s.Header.Queue, true
	place := Address{Segment: t.segment, Block: uint32(t.offset)}
	t.files[0].close()
	t.files[1].close()
	for i := s.Relocations.From(place); i < s.Relocations.Count(); i++ {
		at, err := s.RelocatedBlock(&b.Block, i)
		if err != nil {
			return false, err
		}
		b.at, b.next = at, s.AfterBlock(&b.Block, at)
		b.first, b.queue, b.file = 0, s.Header.Queue, s.Header.PlaceFile()
		for at == place && b.first < b.Count && b.Index(b.first) < t.index {
			b.first++
		}
		b.proof = Proof{Footer: s.Before(at.Segment).Half(), Chain: b.Chain()}
		t.segment, t.offset, t.index = at.Segment, int64(b.next.Block), b.next.Index
		t.previous, t.chain = b.proof.Footer, b.proof.Chain
		t.found = b.end()
		if b.first < b.Count {
			t.unchanged = time.Time{}
			return true, nil
		}
	}
	t.moveTo(s.Header.Rewrites.Last+1, s.Digest())
	t.closeRewrite()
	return false, nil
}

// findRewrite opens the rewrite that replaces the segment, if there is one, and checks
// that it continues the entries before the tail's place.
func (t *tailer) findRewrite(b *segment.Block) error {
	l, err := t.r.list()
	if errors.Is(err, fs.ErrNotExist) {
		return nil // the directory has not arrived yet
	}
	if err != nil {
		return err
	}
	s, damage, err := l.OpenCovering(t.r.options.FS, t.r.dir, t.segment)
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
			s.Close()
		}
		return err
	}
	t.rewrite, t.caughtUp = s, false
	t.r.files.Drop(s.Header.Rewrites)
	return nil
}

// checkOutdated returns an error if the tail would read files that a rewrite replaces
// because the rewrite is damaged or quarantined, while a later rewrite exists. Such files
// may contain documents whose deletes are missing in the later rewrite: compaction drops
// a delete after the files with the document were removed at the source. next is the
// rewrite to be read, which may be nil.
func (t *tailer) checkOutdated(l *segment.Listing, next *segment.File, damage error) error {
	var run segment.Run
	if next != nil {
		run = next.Header.Rewrites
	}
	better := func(name segment.FileName) bool {
		return name.Generation > run.Generation && name.First <= t.segment && t.segment <= name.Last
	}
	for _, name := range l.Ignored {
		if f, _ := segment.ParseIgnoredName(name); better(f) && strings.HasSuffix(name, QuarantineSuffix) {
			path := filepath.Join(t.r.dir, name)
			damage = &CorruptionError{Path: path, Segment: t.segment, Reason: "the rewrite is quarantined and has not been copied again"}
		}
	}
	if damage == nil || !slices.ContainsFunc(l.Rewrites, func(r segment.Run) bool { return r.First > t.segment }) {
		return nil
	}
	return damage
}

// checkTruncated returns a *TruncatedError if entries that were delivered, or are of the
// block that is to be delivered next, were truncated, according to the rewrite to be read,
// which may be nil, or to that of the segment of this block.
func (t *tailer) checkTruncated(l *segment.Listing, next *segment.File) error {
	at := t.found.Next
	if next != nil {
		if err := t.truncatedBy(next); err != nil || next.Header.Rewrites.Covers(at.Segment) {
			return err
		}
	}
	runs := l.Covering(at.Segment)
	if len(runs) == 0 || runs[0] == t.examined {
		return nil
	}
	s, _, err := l.OpenCovering(t.r.options.FS, t.r.dir, at.Segment)
	if err != nil || s == nil {
		return err
	}
	defer s.Close()
	if err := t.truncatedBy(s); err != nil {
		return err
	}
	t.examined = s.Header.Rewrites
	return nil
}

func (t *tailer) truncatedBy(s *segment.File) error {
	if t.known && s.Header.Queue != t.queue {
		return s.Forked(t.queue)
	}
	for _, r := range s.Relocations.Truncated {
		for _, p := range []Position{t.delivered, t.found} {
			if at := p.Next; r.From.Compare(at) < 0 && r.Holds(at) {
				t.r.files.Drop(s.Header.Rewrites) // they have the truncated entries
				return &TruncatedError{Position: p, From: r.From, To: r.To}
			}
		}
	}
	return nil
}

// checkProof compares the tail's place with the record of its segment in a rewrite: the end of
// the segment, and the checksum of the original block at the place or before it. If the
// rewrite has left out that block and the segment continues after it, only the previous
// segments are compared.
func (t *tailer) checkProof(s *segment.File, b *segment.Block) error {
	place := Address{Segment: t.segment, Block: uint32(t.offset)}
	o := s.Relocations.Originals[t.segment-s.Header.Rewrites.First]
	switch {
	case t.offset == 0:
		return nil
	case o.End > 0 && (place.Block > o.End || place.Block == o.End && t.index > 0):
		return t.diverged(s, "the last block of the segment ends at %d", o.End)
	case t.chain == 0:
		return nil
	case place.Block == o.End && o.Chain != t.chain:
		return t.forked(s, errors.New("the last block of the segment is another one"))
	}
	i := s.Relocations.From(place)
	if t.index == 0 {
		i-- // the previous block
	}
	if i < 0 || i == s.Relocations.Count() {
		return nil
	}
	at, err := s.RelocatedBlock(b, i)
	if err != nil {
		return err
	}
	_, end := b.Origin(at)
	covers := at.Segment == t.segment && (t.index > 0 && at == place || t.index == 0 && end >= place.Block)
	if covers && (b.Chain() != 0 && b.Chain() != t.chain || t.index == 0 && end > place.Block) {
		return t.forked(s, fmt.Errorf("block %s is another one", at))
	}
	return nil
}

func (t *tailer) closeRewrite() {
	if t.rewrite != nil {
		t.rewrite.Close()
		t.rewrite = nil
	}
}
