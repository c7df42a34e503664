package maintain

import (
	"context"
	"slices"

	"docstore/queue"
	"docstore/queue/internal/segment"
)

// salvage reads everything from a damaged segment that can be verified. The evidence is:
//
//   - a block whose table has the right checksum, if it follows the previous frames;
//   - a block elsewhere, found by looking at every byte, only if the checksum of one of its
//     entries is right, too: that covers the block's own address, so a copy of a block
//     inside a document is not accepted;
//   - a commit mark, footer or relocations, which contain their own offset;
//   - an entry of a damaged table with the right checksum, see salvageEntries;
//   - a document by its entry's checksum.
type salvage struct {
	s        *segment.File
	opaque   bool // codec or dictionary is lost, so documents cannot be decoded
	loss     func(Loss) error
	write    func(*segment.RelocatedBlock) error
	progress func(bytes int64)

	done    queue.Address // every address before it is written or reported
	damaged bool          // since done
	block   segment.Block
	kept    segment.RelocatedBlock

	offset   int64          // of the end of the frames read so far
	good     int64          // end of the last whole frame
	chain    uint32         // checksum of the last whole block
	totals   segment.Totals // of the whole blocks
	appended int64          // time of the last of them
	cursor   []byte         // of the last of them
	// footer and table are those of the file if they are whole.
	footer *segment.Footer
	table  *segment.Relocations

	lost     []segment.AddressRange // ranges without known ids, ascending
	unproven int64                  // expiries copied from damaged tables
	lostIDs  int64
}

// Loss is a document or a range of addresses that Repair cannot recover.
type Loss struct {
	// From and To: the addresses at From and before To are lost.
	From, To queue.Address
	// ID is the id of the one lost document, which keeps its entry and is unavailable.
	// Nil: the documents and deletes in the range are unknown.
	ID []byte
	// Unproven: the ID was read from damaged bytes and may belong to the range. Its entry
	// is lost.
	Unproven bool
}

// minBlockBytes is the minimum size of a block.
const minBlockBytes = segment.BlockHeaderBytes + segment.EntryBytes + 1

// run reads the file from its first frame to its end.
func (v *salvage) run(ctx context.Context) error {
	for v.offset < v.s.Limit() {
		if err := ctx.Err(); err != nil {
			return err
		}
		from := v.offset
		kind, err := v.s.Frame(&v.block, v.offset)
		switch {
		case err == nil && kind == segment.FrameMark:
			err = v.account(queue.Address{Segment: v.s.Number, Block: uint32(v.offset)})
			v.offset += segment.MarkBytes
			v.good = v.offset
		case err == nil:
			err = v.whole()
		case !segment.IsContent(err):
			return err
		case v.atEnd():
			return nil
		default:
			v.damaged = true
			err = v.resume()
		}
		if err != nil {
			return err
		}
		v.progress(min(v.offset, v.s.Limit()) - from)
	}
	return nil
}

// whole copies the block at offset, whose table is whole.
func (v *salvage) whole() error {
	b := &v.block
	data := segment.GetScratch()
	defer data.Release()
	documents, err := v.read(data, v.offset+b.DataOffset(), int64(b.DataBytes))
	if err != nil {
		return err
	}
	at, end := b.Origin(queue.Address{Segment: v.s.Number, Block: uint32(v.offset)})
	if b.RelocatedBlock && v.misplaced(at) {
		v.damaged = true
		v.offset += b.Size()
		return nil
	}
	if err := v.account(at); err != nil {
		return err
	}
	v.kept.Reset(at, end, b.Chain(), b.Appended, b.Cursor())
	for i := range b.Count {
		e, place := b.Entry(i), at
		id, document := b.ID(e), documents[e.Start:e.End]
		place.Index = b.Index(i)
		expiry := segment.ExpirySeconds(b.Expires(i))
		if !v.readable(place, &e, id, document) {
			v.kept.AddBare(place.Index, id, segment.FlagLost, expiry)
			if err := v.recordLoss(Loss{From: place, To: following(place), ID: id}); err != nil {
				return err
			}
			continue
		}
		v.kept.Add(place.Index, id, document, e.RawAndFlags, e.CRC, expiry)
	}
	v.totals.Add(v.offset, b)
	v.chain, v.appended, v.cursor = b.CRC, b.Appended, slices.Clone(b.Cursor())
	v.offset += b.Size()
	v.good = v.offset
	v.done = queue.Address{Segment: at.Segment, Block: end}
	return v.write(&v.kept)
}

// misplaced reports whether a relocated block states an impossible origin: outside of the
// run, or not after the previous block.
func (v *salvage) misplaced(at queue.Address) bool {
	return !v.s.Header.Holds(at.Segment) || at.Compare(v.done) < 0
}

func following(at queue.Address) queue.Address {
	at.Index++ // the index cannot overflow: a block has fewer entries
	return at
}

// readable reports whether a document is whole and can be decoded.
func (v *salvage) readable(at queue.Address, e *segment.Entry, id, document []byte) bool {
	return segment.VerifyDocument(at, e, id, document) == nil && (!v.opaque || !e.HasCoded())
}

// read returns bytes of the file, and zeros beyond its end.
func (v *salvage) read(room *segment.Scratch, offset, size int64) ([]byte, error) {
	b := room.Sized(int(size))
	there := max(0, min(size, v.s.Info.Size-offset))
	clear(b[there:])
	return b, v.s.ReadAt(b[:there], offset)
}

// account records the addresses between done and a block as lost.
func (v *salvage) account(next queue.Address) error {
	from := v.done
	damaged := v.damaged
	v.done, v.damaged = next, false
	if !damaged || from.Compare(next) >= 0 {
		return nil
	}
	if from.Segment == next.Segment && next.Index == 0 && from.Index == 0 && next.Block-from.Block < minBlockBytes && v.s.Relocations == nil {
		return nil // not larger than a commit mark
	}
	v.lost = append(v.lost, segment.AddressRange{From: from, To: next})
	return v.recordLoss(Loss{From: from, To: next})
}

func (v *salvage) recordLoss(l Loss) error {
	if l.ID != nil && !l.Unproven {
		v.lostIDs++
	}
	return v.loss(l)
}

// atEnd looks for relocations or a footer at offset.
func (v *salvage) atEnd() bool {
	room := v.s.Info.Size - v.offset
	if room < segment.FooterBytes {
		return false
	}
	head := make([]byte, max(segment.FooterBytes, segment.RelocationsHeadBytes))
	if v.s.ReadAt(head, v.offset) != nil {
		return false
	}
	if footer, err := segment.ParseFooter(head[:segment.FooterBytes], v.offset); err == nil {
		v.footer = &footer
		return true
	}
	if v.s.Relocations == nil || segment.FrameType(head[4]) != segment.FrameRelocations || segment.RelocationsSize(head) > room {
		return false
	}
	b := make([]byte, segment.RelocationsSize(head))
	if v.s.ReadAt(b, v.offset) != nil {
		return false
	}
	table, err := segment.ParseRelocations(b, uint32(v.offset))
	v.table = table
	return err == nil
}

// resume continues after the damage at offset.
func (v *salvage) resume() error {
	if v.tableWhole() { // the file was cut in the documents
		return v.whole()
	}
	next, err := v.resync()
	if err != nil {
		return err
	}
	room := segment.GetScratch()
	defer room.Release()
	raw, err := v.read(room, v.offset, min(next-v.offset, segment.MaxBlockFileBytes))
	if err != nil {
		return err
	}
	end, err := v.entries(raw)
	if err != nil {
		return err
	}
	if end > 0 && v.offset+end < next {
		next = v.offset + end
	}
	v.offset = next
	return nil
}

// tableWhole reports whether offset has a block whose documents extend beyond the end of
// the file.
func (v *salvage) tableWhole() bool {
	b := &v.block
	if len(b.Bytes) < segment.BlockHeaderBytes {
		return false
	}
	h, err := segment.ParseBlockHeader(b.Bytes[:segment.BlockHeaderBytes])
	if err != nil || h.DataOffset() > v.s.Limit()-v.offset || v.s.Footer != nil {
		return false
	}
	b.Bytes = slices.Grow(b.Bytes[:0], int(h.DataOffset()))[:h.DataOffset()]
	return v.s.ReadAt(b.Bytes, v.offset) == nil && b.Parse() == nil && b.RelocatedBlock == (v.s.Relocations != nil)
}

// resync returns the offset at which the frames continue: after the damaged block at
// offset, if the frame there names that block by its checksum, otherwise at the next
// verified frame.
func (v *salvage) resync() (int64, error) {
	if b := v.block.Bytes; len(b) >= segment.BlockHeaderBytes {
		if h, err := segment.ParseBlockHeader(b[:segment.BlockHeaderBytes]); err == nil {
			var next segment.Block
			after := segment.Walk{Next: v.offset + h.Size(), Chain: h.CRC}
			if _, err := after.Step(v.s, &next); err == nil {
				return v.offset + h.Size(), nil
			}
		}
	}
	limit := v.s.Limit()
	buffer := make([]byte, min(segment.ScanBytes, limit-v.offset))
	for at := v.offset + 1; at+segment.MarkBytes <= limit; at += segment.ScanBytes - segment.BlockHeaderBytes + 1 {
		window := buffer[:min(int64(len(buffer)), limit-at)]
		if err := v.s.ReadAt(window, at); err != nil {
			return 0, err
		}
		for i := 0; i+segment.MarkBytes <= len(window); i++ {
			if v.verifiedFrame(window[i:], at+int64(i)) {
				return at + int64(i), nil
			}
		}
	}
	return limit, nil
}

// verifiedFrame reports whether a verified frame begins at an offset, given its first
// bytes.
func (v *salvage) verifiedFrame(b []byte, offset int64) bool {
	switch kind := segment.FrameType(b[4]); kind {
	case segment.FrameMark:
		return segment.CheckMark(b[:segment.MarkBytes], offset) == nil
	case segment.FrameFooter, segment.FrameRelocations:
		at := *v
		at.offset = offset
		return int64(segment.Little.Uint32(b[8:])) == offset && at.atEnd()
	case segment.FrameBlock:
		return len(b) >= segment.BlockHeaderBytes && v.verifiedBlock(b, offset)
	default:
		return false
	}
}

// verifiedBlock reports whether the block with the header belongs at the offset.
func (v *salvage) verifiedBlock(header []byte, offset int64) bool {
	if _, err := segment.ParseBlockHeader(header[:segment.BlockHeaderBytes]); err != nil {
		return false
	}
	var b segment.Block
	if _, err := v.s.Frame(&b, offset); err != nil {
		return false
	}
	bad, err := v.s.CheckDocuments(&b, offset, nil)
	return err == nil && len(bad) < b.Count
}

// Recovery of entries from a block whose table has a wrong checksum. Each entry has a
// checksum of its address, id, length and stored bytes. An entry with the right checksum
// is accepted at whatever position in the block it was tried. Its expiry is not covered:
// it is copied and counted as unproven.

// layout is a possible layout of a damaged block's table.
type layout struct {
	count      int
	expiries   bool
	relocated  bool
	dataOffset int
}

func (l *layout) header() *segment.BlockHeader {
	return &segment.BlockHeader{Count: l.count, Expiries: l.expiries, RelocatedBlock: l.relocated}
}

// proven is an entry verified by its checksum.
type proven struct {
	segment.Entry
	index        uint16
	id, document []byte
	expiry       uint32
}

// entries copies the verified entries of the damaged block that raw begins with. It
// returns the end of the block in raw, 0 if that is unknown.
func (v *salvage) entries(raw []byte) (end int64, err error) {
	if len(raw) < minBlockBytes {
		return 0, nil
	}
	var best layout
	var found []proven
	for _, l := range layouts(raw, v.s.Relocations != nil) {
		if got := l.proven(raw, v.s.Number, v.offset); len(got) > len(found) {
			best, found = l, got
		}
	}
	if len(found) == 0 {
		return 0, nil
	}
	h := best.header()
	at, originEnd := best.origin(raw, v.s.Number, v.offset)
	if best.relocated && v.misplaced(at) {
		return 0, nil
	}
	end = int64(best.dataOffset) + int64(found[len(found)-1].End)
	ended := int(found[len(found)-1].index) == best.count-1
	if best.relocated {
		last := segment.Little.Uint16(raw[h.OriginOffset()+segment.OriginBytes+segment.OriginalIndexBytes*int64(best.count-1):])
		ended = found[len(found)-1].index == last
	} else if originEnd = uint32(v.offset + end); !ended {
		originEnd = uint32(v.offset + int64(len(raw)))
	}
	if err := v.unprovenIDs(raw, &best, at, found); err != nil {
		return 0, err
	}
	v.kept.Reset(at, max(originEnd, at.Block+1), 0, v.appended, nil)
	for _, p := range found {
		place := at
		place.Index = p.index
		if v.done.Compare(place) < 0 {
			v.damaged = true
			if err := v.account(place); err != nil {
				return 0, err
			}
		}
		if v.done = following(place); !v.readable(place, &p.Entry, p.id, p.document) {
			v.kept.AddBare(p.index, p.id, segment.FlagLost, p.expiry)
			if err := v.recordLoss(Loss{From: place, To: v.done, ID: p.id}); err != nil {
				return 0, err
			}
			continue
		}
		if p.expiry != 0 {
			v.unproven++
		}
		v.kept.Add(p.index, p.id, p.document, p.RawAndFlags, p.CRC, p.expiry)
	}
	v.damaged = !ended
	if ended {
		v.done = queue.Address{Segment: at.Segment, Block: originEnd}
	} else {
		end = 0
	}
	return end, v.write(&v.kept)
}

// layouts returns the possible layouts of the block if at most one field of its header is
// wrong, given that raw ends with the block.
func layouts(raw []byte, relocated bool) (found []layout) {
	count, table, data := int(segment.Little.Uint16(raw[6:])), int(segment.Little.Uint32(raw[8:])), int(segment.Little.Uint32(raw[12:]))
	cursor := int(segment.Little.Uint16(raw[28:]))
	said := raw[5]&segment.BlockHasExpiries != 0
	for _, expiries := range []bool{said, !said} {
		for _, dataOffset := range []int{segment.BlockHeaderBytes + table, len(raw) - data} {
			if dataOffset < minBlockBytes || dataOffset > len(raw) {
				continue
			}
			l := layout{count: count, expiries: expiries, relocated: relocated, dataOffset: dataOffset}
			if l.count > 0 {
				found = append(found, l)
			}
			if l.count = l.countEntries(raw, cursor); l.count > 0 && l.count != count {
				found = append(found, l)
			}
		}
	}
	return slices.Compact(found)
}

// countEntries returns the number of entries for which ids and cursor end at the start of
// the documents; 0 if there is none.
func (l layout) countEntries(raw []byte, cursorBytes int) int {
	var before segment.Entry
	for i := range queue.MaxBlockEntries {
		offset := segment.BlockHeaderBytes + segment.EntryBytes*i
		if offset+segment.EntryBytes > l.dataOffset {
			return 0
		}
		e := segment.ParseEntry(raw[offset:], 0)
		if e.End < before.End || e.IdEnd <= before.IdEnd || e.IdEnd-before.IdEnd > queue.MaxIDBytes {
			return 0
		}
		before, l.count = e, i+1
		if l.header().IdsOffset()+int64(e.IdEnd)+int64(cursorBytes) == int64(l.dataOffset) {
			return l.count
		}
	}
	return 0
}

// origin returns the original address of the block: see block.origin.
func (l *layout) origin(raw []byte, n queue.SegmentID, offset int64) (at queue.Address, end uint32) {
	if !l.relocated {
		return queue.Address{Segment: n, Block: uint32(offset)}, 0
	}
	o := raw[l.header().OriginOffset():]
	return queue.Address{Segment: queue.SegmentID(segment.Little.Uint32(o)), Block: segment.Little.Uint32(o[4:])}, segment.Little.Uint32(o[8:])
}

// entry returns entry i of the block in this layout.
func (l *layout) entry(raw []byte, i int) (p proven, ok bool) {
	h := l.header()
	ids := h.IdsOffset()
	if ids > int64(l.dataOffset) {
		return p, false
	}
	p.Entry = segment.ParseEntry(raw[segment.BlockHeaderBytes+segment.EntryBytes*max(i-1, 0):], i)
	idFrom, idTo := ids+int64(p.IdStart), ids+int64(p.IdEnd)
	from, to := int64(l.dataOffset)+int64(p.Start), int64(l.dataOffset)+int64(p.End)
	if idFrom >= idTo || idTo > int64(l.dataOffset) || idTo-idFrom > queue.MaxIDBytes || from > to || to > int64(len(raw)) {
		return p, false
	}
	p.id, p.document, p.index = raw[idFrom:idTo], raw[from:to], uint16(i)
	if l.relocated {
		p.index = segment.Little.Uint16(raw[h.OriginOffset()+segment.OriginBytes+segment.OriginalIndexBytes*int64(i):])
	}
	if l.expiries {
		p.expiry = segment.Little.Uint32(raw[segment.BlockHeaderBytes+segment.EntryBytes*l.count+segment.ExpiryBytes*i:])
	}
	return p, true
}

// proven returns the entries of the block in this layout that have the right checksum.
func (l *layout) proven(raw []byte, n queue.SegmentID, offset int64) (found []proven) {
	if l.header().IdsOffset() > int64(l.dataOffset) {
		return nil
	}
	at, _ := l.origin(raw, n, offset)
	for i := range l.count {
		p, ok := l.entry(raw, i)
		if at.Index = p.index; !ok || segment.VerifyDocument(at, &p.Entry, p.id, p.document) != nil {
			continue
		}
		if last := len(found) - 1; last >= 0 && found[last].index >= p.index {
			continue
		}
		found = append(found, p)
	}
	return found
}

// unprovenIDs reports the ids that seem to belong to lost entries.
func (v *salvage) unprovenIDs(raw []byte, l *layout, at queue.Address, found []proven) error {
	for i := range l.count {
		p, ok := l.entry(raw, i)
		if len(found) > 0 && found[0].index == p.index {
			found = found[1:]
			continue
		}
		if !ok {
			continue
		}
		place := at
		place.Index = p.index
		if err := v.recordLoss(Loss{From: place, To: following(place), ID: p.id, Unproven: true}); err != nil {
			return err
		}
	}
	return nil
}
