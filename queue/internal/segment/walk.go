package segment

import (
	"errors"
	"fmt"
)

// Walk follows the frames of a segment and verifies their chain.
type Walk struct {
	Next   int64  // offset of the next frame
	Chain  uint32 // checksum of the last block before next, or of the header
	broken bool   // chain is unknown
	Jumped bool   // damage was skipped, so not all blocks were seen
	Seen   Totals // of all whole blocks before next
	Marked struct {
		End    int64  // after the last valid mark
		Chain  uint32 // checksum of the last block before it
		Totals        // of the blocks before it
	}
}

// NewWalk returns a walk at the first frame.
func (s *File) NewWalk() *Walk {
	w := &Walk{Next: s.Header.FirstFrame(), Chain: s.Header.CRC}
	w.commit()
	return w
}

// Advance follows the frames until one is not whole. It returns nil after the footer,
// otherwise the error of the frame at w.next, which is ErrPartial at the end of a good
// file.
func (w *Walk) Advance(s *File, b *Block) error {
	for {
		kind, err := w.Step(s, b)
		if err != nil || kind == FrameFooter {
			return err
		}
	}
}

// Step verifies the frame at next and moves past it, unless it is the footer. A block is
// left in b.
func (w *Walk) Step(s *File, b *Block) (FrameType, error) {
	if s.Footer != nil && w.Next == s.Limit() {
		if err := w.chained(s, "footer", s.Footer.Chain); err != nil {
			return frameNone, err
		}
		w.commit()
		return FrameFooter, nil
	}
	kind, err := s.Frame(b, w.Next)
	if err != nil {
		return frameNone, err
	}
	if kind == FrameMark {
		chain := b.MarkedChain()
		if err := w.chained(s, "commit mark", chain); err != nil {
			return frameNone, err
		}
		w.Next += MarkBytes
		w.Chain, w.broken = chain, false
		w.commit()
		return kind, nil
	}
	if err := w.chained(s, "block", b.Previous); err != nil {
		return frameNone, err
	}
	w.pass(b)
	return kind, nil
}

// chained compares the chain in the frame at next with the previous block.
func (w *Walk) chained(s *File, frame string, chain uint32) error {
	if chain != w.Chain && !w.broken {
		return s.Corruption(w.Next, fmt.Errorf("%s follows block %08x, the last one is %08x", frame, chain, w.Chain))
	}
	return nil
}

// pass moves past the block at next.
func (w *Walk) pass(b *Block) {
	w.Seen.Add(w.Next, b)
	w.Chain, w.broken = b.CRC, false
	w.Next += b.Size()
}

// commit records that everything before next is committed.
func (w *Walk) commit() {
	w.Marked.End, w.Marked.Chain, w.Marked.Totals = w.Next, w.Chain, w.Seen
}

// rewind goes back to the end of the last commit mark.
func (w *Walk) rewind() {
	w.Next, w.Chain, w.Seen = w.Marked.End, w.Marked.Chain, w.Marked.Totals
}

// Jump moves past the damage at next: to the frame after the damaged one, if its length
// is valid, otherwise to the next commit mark or footer. If the frame is whole and only
// its chain is wrong, jump continues with that frame.
func (w *Walk) Jump(s *File) error {
	w.Jumped = true
	var b Block
	_, err := s.Frame(&b, w.Next)
	if err == nil || w.Next == s.Limit() {
		w.broken = true
		return nil
	}
	if len(b.Bytes) >= BlockHeaderBytes {
		if h, err := ParseBlockHeader(b.Bytes[:BlockHeaderBytes]); err == nil {
			after := Walk{Next: w.Next + h.Size(), Chain: h.CRC}
			if _, err := after.Step(s, &b); err == nil {
				w.Next, w.Chain = w.Next+h.Size(), h.CRC
				return nil
			}
		}
	}
	mark, err := s.markAfter(w.Next + 1)
	if mark < 0 {
		mark = s.Limit()
	}
	w.Next, w.broken = mark, true
	return err
}

// LastMark returns a walk at the end of the segment's last commit mark, or at its footer,
// with everything before it verified except documents.
func (s *File) LastMark() (*Walk, error) {
	var b Block
	w := s.NewWalk()
	if err := w.Advance(s, &b); err != nil {
		if err := s.Damage(w.Next, err); !errors.Is(err, ErrPartial) {
			return nil, err
		}
	}
	w.rewind()
	return w, nil
}

// passWhole moves past the last whole block of the file. A block after the last mark
// counts only if its documents are whole, too.
func (w *Walk) passWhole(s *File) error {
	var b Block
	for {
		kind, err := s.Frame(&b, w.Next)
		if err == nil && kind == FrameBlock {
			err = w.chained(s, "block", b.Previous)
		}
		if IsContent(err) || err == nil && kind != FrameBlock {
			return nil
		}
		if err != nil {
			return err
		}
		bad, err := s.CheckDocuments(&b, w.Next, nil)
		if err != nil || len(bad) > 0 {
			return err
		}
		w.pass(&b)
	}
}
