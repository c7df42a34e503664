package queue

import (
	"bytes"
	"errors"
	"io/fs"
	"slices"

	"docstore/internal/checksum"
	"docstore/queue/codec"
)

// recoverHeader reconstructs a damaged header. The queue and the previous digest come
// from the neighboring files, the creation time from the first block. Codec and
// dictionary are found by trial: the first block contains the checksum of the header, and
// so does the damaged header itself. Without such evidence it returns false, and a header
// without codec.
func (r *repairer) recoverHeader(s *segmentFile, run rewriteRun, previous digest) ([]byte, bool, error) {
	raw := make([]byte, headerBytes)
	if err := s.readAt(raw[:min(headerBytes, s.info.Size)], 0); err != nil {
		return nil, false, err
	}
	h := unverifiedHeader(raw)
	h.queue, h.segment, h.rewrites, h.previous = r.queue, s.number, run, previous
	first, found, err := firstBlock(s, h)
	if err != nil {
		return nil, false, err
	}
	proofs := []uint32{little.Uint32(raw[8:])}
	created := []int64{h.created}
	if found {
		proofs = append(proofs, first.previous)
		created = append(created, first.appended)
	} else if s.footer != nil && s.footer.blocks == 0 {
		proofs = append(proofs, s.footer.chain)
	}
	if mended, ok := correctByte(raw, proofs); ok && mended.rewrites == run && mended.holds(s.number) {
		s.header = mended
		return r.recoverDictionary(s)
	}
	dictionaries, err := r.dictionaries(s, h, first.offset)
	if err != nil {
		return nil, false, err
	}
	for _, d := range dictionaries {
		try := h
		try.setDictionary(d.content)
		for _, try.codec = range []codec.ID{h.codec, codec.None, codec.LZO, codec.S2, codec.Zstd} {
			for _, try.created = range created {
				for _, try.sampled = range []rewriteRun{h.sampled, d.sampled, {}} {
					for _, try.erases = range []bool{false, true} {
						if try.encode(); slices.Contains(proofs, try.crc) {
							s.header = try
							return d.content, true, nil
						}
					}
				}
			}
		}
	}
	h.codec, h.crc = codec.None, first.previous
	h.dictionary.bytes = uint32(max(first.offset-headerBytes, 0))
	s.header = h
	return nil, false, nil
}

// correctByte corrects a header with a single wrong byte, verified by its checksum.
func correctByte(raw []byte, proofs []uint32) (segmentHeader, bool) {
	try := bytes.Clone(raw)
	for _, crc := range proofs {
		copy(try, segmentMagic)
		little.PutUint32(try[8:], crc)
		for i := 12; i < headerBytes; i++ {
			for range 256 {
				if checksum.Update(0, try[12:]) == crc {
					h, err := parseHeader(try)
					return h, err == nil
				}
				try[i]++
			}
		}
	}
	return segmentHeader{}, false
}

// unverifiedHeader parses a damaged header without verification.
func unverifiedHeader(raw []byte) (h segmentHeader) {
	h.queue = [16]byte(raw[16:])
	h.codec, h.erases = codec.ID(raw[36]), raw[37] == headerErases
	h.created = int64(little.Uint64(raw[40:]))
	h.dictionary.bytes = little.Uint32(raw[92:])
	h.dictionary.hash = codec.DictionaryHash(raw[96:])
	h.sampled = rewriteRun{first: SegmentID(little.Uint32(raw[112:])), last: SegmentID(little.Uint32(raw[116:])), generation: little.Uint32(raw[120:])}
	return h
}

// foundBlock is the information about the header in the first block.
type foundBlock struct {
	offset   int64
	previous uint32
	appended int64
}

// firstBlock looks for the first whole block.
func firstBlock(s *segmentFile, h segmentHeader) (found foundBlock, ok bool, err error) {
	s.header = h
	v := salvage{s: s, offset: headerBytes - 1}
	limit := s.limit()
	for v.offset < limit {
		if v.offset, err = v.resync(); err != nil || v.offset >= limit {
			return found, false, err
		}
		var b block
		if kind, err := s.frame(&b, v.offset); err == nil && kind == frameBlock {
			return foundBlock{v.offset, b.previous, b.appended}, true, nil
		}
	}
	return found, false, nil
}

// knownDictionary is a dictionary of the queue, with the segments that it was trained
// from.
type knownDictionary struct {
	content []byte
	sampled rewriteRun
}

// dictionaries returns the candidates for the segment's dictionary: none, the bytes
// between its header and its first block, and those of other segments.
func (r *repairer) dictionaries(s *segmentFile, h segmentHeader, first int64) ([]knownDictionary, error) {
	found := []knownDictionary{{}}
	for _, size := range []int64{first - headerBytes, int64(h.dictionary.bytes)} {
		if size <= 0 || size > codec.MaxDictionaryBytes || size > s.info.Size-headerBytes {
			continue
		}
		content := make([]byte, size)
		if err := s.readAt(content, headerBytes); err != nil {
			return nil, err
		}
		found = append(found, knownDictionary{content, h.sampled})
	}
	others, err := r.otherDictionaries()
	return append(found, others...), err
}

// otherDictionaries returns the dictionaries of segments with a whole header.
func (r *repairer) otherDictionaries() ([]knownDictionary, error) {
	if r.known != nil {
		return r.known, nil
	}
	r.known = []knownDictionary{}
	for _, p := range r.places {
		s, err := openSegmentFile(r.options.FS, p.path, p.run.first)
		if err != nil {
			if !isContent(err) && !errors.Is(err, fs.ErrNotExist) {
				return nil, err
			}
			continue
		}
		content, err := s.dictionary()
		s.close()
		if err != nil && !isContent(err) {
			return nil, err
		}
		same := func(other knownDictionary) bool { return bytes.Equal(other.content, content) }
		if err == nil && len(content) > 0 && !slices.ContainsFunc(r.known, same) {
			r.known = append(r.known, knownDictionary{content, s.header.sampled})
		}
	}
	return r.known, nil
}

// recoverDictionary returns the dictionary that a whole header names, from another
// segment if it is damaged in this one; false: it was not found.
func (r *repairer) recoverDictionary(s *segmentFile) ([]byte, bool, error) {
	content, err := s.dictionary()
	if err == nil || !isContent(err) {
		return content, err == nil, err
	}
	others, err := r.otherDictionaries()
	for _, other := range others {
		if codec.HashDictionary(other.content) == s.header.dictionary.hash {
			return other.content, true, err
		}
	}
	return nil, false, err
}
