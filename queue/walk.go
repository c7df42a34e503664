package queue

import (
	"errors"
	"fmt"
)

// walk follows the frames of a segment and verifies their chain.
type walk struct {
	next   int64  // offset of the next frame
	chain  uint32 // checksum of the last block before next, or of the header
	broken bool   // chain is unknown
	jumped bool   // damage was skipped, so not all blocks were seen
	seen   totals // of all whole blocks before next
	marked struct {
		end    int64  // after the last valid mark
		chain  uint32 // checksum of the last block before it
		totals        // of the blocks before it
	}
}

func (s *segmentFile) newWalk() *walk {
	w := &walk{next: s.header.firstFrame(), chain: s.header.crc}
	w.commit()
	return w
}

// advance follows the frames until one is not whole. It returns nil after the footer,
// otherwise the error of the frame at w.next, which is errIncomplete at the end of a good
// file.
func (w *walk) advance(s *segmentFile, b *block) error {
	for {
		kind, err := w.step(s, b)
		if err != nil || kind == frameFooter {
			return err
		}
	}
}

// step verifies the frame at next and moves past it, unless it is the footer. A block is
// left in b.
func (w *walk) step(s *segmentFile, b *block) (frameType, error) {
	if s.footer != nil && w.next == s.limit() {
		if err := w.chained(s, "footer", s.footer.chain); err != nil {
			return frameNone, err
		}
		w.commit()
		return frameFooter, nil
	}
	kind, err := s.frame(b, w.next)
	if err != nil {
		return frameNone, err
	}
	if kind == frameMark {
		chain := b.markedChain()
		if err := w.chained(s, "commit mark", chain); err != nil {
			return frameNone, err
		}
		w.next += markBytes
		w.chain, w.broken = chain, false
		w.commit()
		return kind, nil
	}
	if err := w.chained(s, "block", b.previous); err != nil {
		return frameNone, err
	}
	w.pass(b)
	return kind, nil
}

// chained compares the chain in the frame at next with the previous block.
func (w *walk) chained(s *segmentFile, frame string, chain uint32) error {
	if chain != w.chain && !w.broken {
		return s.corruption(w.next, fmt.Errorf("%s follows block %08x, the last one is %08x", frame, chain, w.chain))
	}
	return nil
}

// pass moves past the block at next.
func (w *walk) pass(b *block) {
	w.seen.add(w.next, b)
	w.chain, w.broken = b.crc, false
	w.next += b.size()
}

// commit records that everything before next is committed.
func (w *walk) commit() {
	w.marked.end, w.marked.chain, w.marked.totals = w.next, w.chain, w.seen
}

// rewind goes back to the end of the last commit mark.
func (w *walk) rewind() {
	w.next, w.chain, w.seen = w.marked.end, w.marked.chain, w.marked.totals
}

// jump moves past the damage at next: to the frame after the damaged one, if its length
// is valid, otherwise to the next commit mark or footer. If the frame is whole and only
// its chain is wrong, jump continues with that frame.
func (w *walk) jump(s *segmentFile) error {
	w.jumped = true
	var b block
	_, err := s.frame(&b, w.next)
	if err == nil || w.next == s.limit() {
		w.broken = true
		return nil
	}
	if len(b.bytes) >= blockHeaderBytes {
		if h, err := parseBlockHeader(b.bytes[:blockHeaderBytes]); err == nil {
			after := walk{next: w.next + h.size(), chain: h.crc}
			if _, err := after.step(s, &b); err == nil {
				w.next, w.chain = w.next+h.size(), h.crc
				return nil
			}
		}
	}
	mark, err := s.markAfter(w.next + 1)
	if mark < 0 {
		mark = s.limit()
	}
	w.next, w.broken = mark, true
	return err
}

// lastMark returns a walk at the end of the segment's last commit mark, or at its footer,
// with everything before it verified except documents.
func (s *segmentFile) lastMark() (*walk, error) {
	var b block
	w := s.newWalk()
	if err := w.advance(s, &b); err != nil {
		if err := s.damage(w.next, err); !errors.Is(err, errIncomplete) {
			return nil, err
		}
	}
	w.rewind()
	return w, nil
}

// passWhole moves past the last whole block of the file. A block after the last mark
// counts only if its documents are whole, too.
func (w *walk) passWhole(s *segmentFile) error {
	var b block
	for {
		kind, err := s.frame(&b, w.next)
		if err == nil && kind == frameBlock {
			err = w.chained(s, "block", b.previous)
		}
		if isContent(err) || err == nil && kind != frameBlock {
			return nil
		}
		if err != nil {
			return err
		}
		bad, err := s.checkDocuments(&b, w.next, nil)
		if err != nil || len(bad) > 0 {
			return err
		}
		w.pass(&b)
	}
}
