package queue

import "slices"

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
func (l *layout) origin(raw []byte, segment SegmentID, offset int64) (at Address, end uint32) {
	if !l.relocated {
		return Address{Segment: segment, Block: uint32(offset)}, 0
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
func (l *layout) proven(raw []byte, segment SegmentID, offset int64) (found []proven) {
	if l.header().idsOffset() > int64(l.dataOffset) {
		return nil
	}
	at, _ := l.origin(raw, segment, offset)
	for i := range l.count {
		p, ok := l.entry(raw, i)
		if at.Index = p.index; !ok || verifyDocument(at, &p.entry, p.id, p.document) != nil {
			continue
		}
		if n := len(found); n > 0 && found[n-1].index >= p.index {
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
