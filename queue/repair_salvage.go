package queue

import (
	"context"
	"slices"
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
	s        *segmentFile
	opaque   bool // codec or dictionary is lost, so documents cannot be decoded
	loss     func(Loss) error
	write    func(*relocated) error
	progress func(bytes int64)

	done    Address // every address before it is written or reported
	damaged bool    // since done
	block   block
	kept    relocated

	offset   int64  // of the end of the frames read so far
	good     int64  // end of the last whole frame
	chain    uint32 // checksum of the last whole block
	totals   totals // of the whole blocks
	appended int64  // time of the last of them
	cursor   []byte // of the last of them
	// footer and table are those of the file if they are whole.
	footer *segmentFooter
	table  *relocations

	lost     []addressRange // ranges without known ids, ascending
	unproven int64          // expiries copied from damaged tables
	lostIDs  int64
}

// Loss is a document or a range of addresses that Repair cannot recover.
type Loss struct {
	// From and To: the addresses at From and before To are lost.
	From, To Address
	// ID is the id of the one lost document, which keeps its entry and is unavailable.
	// Nil: the documents and deletes in the range are unknown.
	ID []byte
	// Unproven: the ID was read from damaged bytes and may belong to the range. Its entry
	// is lost.
	Unproven bool
}

// minBlockBytes is the minimum size of a block.
const minBlockBytes = blockHeaderBytes + entryBytes + 1

// run reads the file from its first frame to its end.
func (v *salvage) run(ctx context.Context) error {
	for v.offset < v.s.limit() {
		if err := ctx.Err(); err != nil {
			return err
		}
		from := v.offset
		kind, err := v.s.frame(&v.block, v.offset)
		switch {
		case err == nil && kind == frameMark:
			err = v.account(Address{Segment: v.s.number, Block: uint32(v.offset)})
			v.offset += markBytes
			v.good = v.offset
		case err == nil:
			err = v.whole()
		case !isContent(err):
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
		v.progress(min(v.offset, v.s.limit()) - from)
	}
	return nil
}

// whole copies the block at offset, whose table is whole.
func (v *salvage) whole() error {
	b := &v.block
	data := getScratch()
	defer data.release()
	documents, err := v.read(data, v.offset+b.dataOffset(), int64(b.dataBytes))
	if err != nil {
		return err
	}
	at, end := b.origin(Address{Segment: v.s.number, Block: uint32(v.offset)})
	if b.relocated && v.misplaced(at) {
		v.damaged = true
		v.offset += b.size()
		return nil
	}
	if err := v.account(at); err != nil {
		return err
	}
	v.kept.reset(at, end, b.chain(), b.appended)
	for i := range b.count {
		e, place := b.entry(i), at
		id, document := b.id(e), documents[e.start:e.end]
		place.Index = b.index(i)
		expiry := expirySeconds(b.expires(i))
		if !v.readable(place, &e, id, document) {
			v.kept.addBare(place.Index, id, flagLost, expiry)
			if err := v.recordLoss(Loss{From: place, To: following(place), ID: id}); err != nil {
				return err
			}
			continue
		}
		v.kept.add(place.Index, id, document, e.rawAndFlags, e.crc, expiry)
	}
	v.totals.add(v.offset, b)
	v.chain, v.appended, v.cursor = b.crc, b.appended, slices.Clone(b.cursor())
	v.offset += b.size()
	v.good = v.offset
	v.done = Address{Segment: at.Segment, Block: end}
	return v.write(&v.kept)
}

// misplaced reports whether a relocated block states an impossible origin: outside of the
// run, or not after the previous block.
func (v *salvage) misplaced(at Address) bool {
	return !v.s.header.holds(at.Segment) || at.Compare(v.done) < 0
}

func following(at Address) Address {
	at.Index++ // the index cannot overflow: a block has fewer entries
	return at
}

// readable reports whether a document is whole and can be decoded.
func (v *salvage) readable(at Address, e *entry, id, document []byte) bool {
	return verifyDocument(at, e, id, document) == nil && (!v.opaque || !e.hasCoded())
}

// read returns bytes of the file, and zeros beyond its end.
func (v *salvage) read(room *scratch, offset, size int64) ([]byte, error) {
	b := room.sized(int(size))
	there := max(0, min(size, v.s.info.Size-offset))
	clear(b[there:])
	return b, v.s.readAt(b[:there], offset)
}

// account records the addresses between done and a block as lost.
func (v *salvage) account(next Address) error {
	from := v.done
	damaged := v.damaged
	v.done, v.damaged = next, false
	if !damaged || from.Compare(next) >= 0 {
		return nil
	}
	if from.Segment == next.Segment && next.Index == 0 && from.Index == 0 && next.Block-from.Block < minBlockBytes && v.s.relocations == nil {
		return nil // not larger than a commit mark
	}
	v.lost = append(v.lost, addressRange{from: from, to: next})
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
	room := v.s.info.Size - v.offset
	if room < footerBytes {
		return false
	}
	head := make([]byte, max(footerBytes, relocationsHeadBytes))
	if v.s.readAt(head, v.offset) != nil {
		return false
	}
	if footer, err := parseFooter(head[:footerBytes], v.offset); err == nil {
		v.footer = &footer
		return true
	}
	if v.s.relocations == nil || frameType(head[4]) != frameRelocations || relocationsSize(head) > room {
		return false
	}
	b := make([]byte, relocationsSize(head))
	if v.s.readAt(b, v.offset) != nil {
		return false
	}
	table, err := parseRelocations(b, uint32(v.offset))
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
	room := getScratch()
	defer room.release()
	raw, err := v.read(room, v.offset, min(next-v.offset, maxBlockFileBytes))
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
	if len(b.bytes) < blockHeaderBytes {
		return false
	}
	h, err := parseBlockHeader(b.bytes[:blockHeaderBytes])
	if err != nil || h.dataOffset() > v.s.limit()-v.offset || v.s.footer != nil {
		return false
	}
	b.bytes = slices.Grow(b.bytes[:0], int(h.dataOffset()))[:h.dataOffset()]
	return v.s.readAt(b.bytes, v.offset) == nil && b.parse() == nil && b.relocated == (v.s.relocations != nil)
}

// resync returns the offset at which the frames continue: after the damaged block at
// offset, if the frame there names that block by its checksum, otherwise at the next
// verified frame.
func (v *salvage) resync() (int64, error) {
	if b := v.block.bytes; len(b) >= blockHeaderBytes {
		if h, err := parseBlockHeader(b[:blockHeaderBytes]); err == nil {
			var next block
			after := walk{next: v.offset + h.size(), chain: h.crc}
			if _, err := after.step(v.s, &next); err == nil {
				return v.offset + h.size(), nil
			}
		}
	}
	limit := v.s.limit()
	buffer := make([]byte, min(scanBytes, limit-v.offset))
	for at := v.offset + 1; at+markBytes <= limit; at += scanBytes - blockHeaderBytes + 1 {
		window := buffer[:min(int64(len(buffer)), limit-at)]
		if err := v.s.readAt(window, at); err != nil {
			return 0, err
		}
		for i := 0; i+markBytes <= len(window); i++ {
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
	switch kind := frameType(b[4]); kind {
	case frameMark:
		return checkMark(b[:markBytes], offset) == nil
	case frameFooter, frameRelocations:
		at := *v
		at.offset = offset
		return int64(little.Uint32(b[8:])) == offset && at.atEnd()
	case frameBlock:
		return len(b) >= blockHeaderBytes && v.verifiedBlock(b, offset)
	default:
		return false
	}
}

// verifiedBlock reports whether the block with the header belongs at the offset.
func (v *salvage) verifiedBlock(header []byte, offset int64) bool {
	if _, err := parseBlockHeader(header[:blockHeaderBytes]); err != nil {
		return false
	}
	var b block
	if _, err := v.s.frame(&b, offset); err != nil {
		return false
	}
	bad, err := v.s.checkDocuments(&b, offset, nil)
	return err == nil && len(bad) < b.count
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

func (l *layout) header() *blockHeader {
	return &blockHeader{count: l.count, expiries: l.expiries, relocated: l.relocated}
}

// proven is an entry verified by its checksum.
type proven struct {
	entry
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
	for _, l := range layouts(raw, v.s.relocations != nil) {
		if got := l.proven(raw, v.s.number, v.offset); len(got) > len(found) {
			best, found = l, got
		}
	}
	if len(found) == 0 {
		return 0, nil
	}
	h := best.header()
	at, originEnd := best.origin(raw, v.s.number, v.offset)
	if best.relocated && v.misplaced(at) {
		return 0, nil
	}
	end = int64(best.dataOffset) + int64(found[len(found)-1].end)
	ended := int(found[len(found)-1].index) == best.count-1
	if best.relocated {
		last := little.Uint16(raw[h.originOffset()+originBytes+originalIndexBytes*int64(best.count-1):])
		ended = found[len(found)-1].index == last
	} else if originEnd = uint32(v.offset + end); !ended {
		originEnd = uint32(v.offset + int64(len(raw)))
	}
	if err := v.unprovenIDs(raw, &best, at, found); err != nil {
		return 0, err
	}
	v.kept.reset(at, max(originEnd, at.Block+1), 0, v.appended)
	for _, p := range found {
		place := at
		place.Index = p.index
		if v.done.Compare(place) < 0 {
			v.damaged = true
			if err := v.account(place); err != nil {
				return 0, err
			}
		}
		if v.done = following(place); !v.readable(place, &p.entry, p.id, p.document) {
			v.kept.addBare(p.index, p.id, flagLost, p.expiry)
			if err := v.recordLoss(Loss{From: place, To: v.done, ID: p.id}); err != nil {
				return 0, err
			}
			continue
		}
		if p.expiry != 0 {
			v.unproven++
		}
		v.kept.add(p.index, p.id, p.document, p.rawAndFlags, p.crc, p.expiry)
	}
	v.damaged = !ended
	if ended {
		v.done = Address{Segment: at.Segment, Block: originEnd}
	} else {
		end = 0
	}
	return end, v.write(&v.kept)
}

// layouts returns the possible layouts of the block if at most one field of its header is
// wrong, given that raw ends with the block.
func layouts(raw []byte, relocated bool) (found []layout) {
	count, table, data := int(little.Uint16(raw[6:])), int(little.Uint32(raw[8:])), int(little.Uint32(raw[12:]))
	cursor := int(little.Uint16(raw[28:]))
	said := raw[5]&blockHasExpiries != 0
	for _, expiries := range []bool{said, !said} {
		for _, dataOffset := range []int{blockHeaderBytes + table, len(raw) - data} {
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
	var before entry
	for i := range MaxBlockEntries {
		offset := blockHeaderBytes + entryBytes*i
		if offset+entryBytes > l.dataOffset {
			return 0
		}
		e := parseEntry(raw[offset:], 0)
		if e.end < before.end || e.idEnd <= before.idEnd || e.idEnd-before.idEnd > MaxIDBytes {
			return 0
		}
		before, l.count = e, i+1
		if l.header().idsOffset()+int64(e.idEnd)+int64(cursorBytes) == int64(l.dataOffset) {
			return l.count
		}
	}
	return 0
}

// origin returns the original address of the block: see block.origin.
func (l *layout) origin(raw []byte, n SegmentID, offset int64) (at Address, end uint32) {
	if !l.relocated {
		return Address{Segment: n, Block: uint32(offset)}, 0
	}
	o := raw[l.header().originOffset():]
	return Address{Segment: SegmentID(little.Uint32(o)), Block: little.Uint32(o[4:])}, little.Uint32(o[8:])
}

// entry returns entry i of the block in this layout.
func (l *layout) entry(raw []byte, i int) (p proven, ok bool) {
	h := l.header()
	ids := h.idsOffset()
	if ids > int64(l.dataOffset) {
		return p, false
	}
	p.entry = parseEntry(raw[blockHeaderBytes+entryBytes*max(i-1, 0):], i)
	idFrom, idTo := ids+int64(p.idStart), ids+int64(p.idEnd)
	from, to := int64(l.dataOffset)+int64(p.start), int64(l.dataOffset)+int64(p.end)
	if idFrom >= idTo || idTo > int64(l.dataOffset) || idTo-idFrom > MaxIDBytes || from > to || to > int64(len(raw)) {
		return p, false
	}
	p.id, p.document, p.index = raw[idFrom:idTo], raw[from:to], uint16(i)
	if l.relocated {
		p.index = little.Uint16(raw[h.originOffset()+originBytes+originalIndexBytes*int64(i):])
	}
	if l.expiries {
		p.expiry = little.Uint32(raw[blockHeaderBytes+entryBytes*l.count+expiryBytes*i:])
	}
	return p, true
}

// proven returns the entries of the block in this layout that have the right checksum.
func (l *layout) proven(raw []byte, n SegmentID, offset int64) (found []proven) {
	if l.header().idsOffset() > int64(l.dataOffset) {
		return nil
	}
	at, _ := l.origin(raw, n, offset)
	for i := range l.count {
		p, ok := l.entry(raw, i)
		if at.Index = p.index; !ok || verifyDocument(at, &p.entry, p.id, p.document) != nil {
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
func (v *salvage) unprovenIDs(raw []byte, l *layout, at Address, found []proven) error {
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
