package maintain

import (
	"bytes"
	"errors"
	"io/fs"
	"slices"

	"docstore/internal/checksum"
	"docstore/queue"
	"docstore/queue/codec"
	"docstore/queue/internal/segment"
)

// recoverHeader reconstructs a damaged header. The queue and the previous digest come
// from the neighboring files, the creation time from the first block. Codec and
// dictionary are found by trial: the first block contains the checksum of the header, and
// so does the damaged header itself. Without such evidence it returns false, and a header
// without codec.
func (r *repairer) recoverHeader(s *segment.File, run segment.Run, previous segment.Digest) ([]byte, bool, error) {
	raw := make([]byte, segment.HeaderBytes)
	if err := s.ReadAt(raw[:min(segment.HeaderBytes, s.Info.Size)], 0); err != nil {
		return nil, false, err
	}
	h := unverifiedHeader(raw)
	h.Queue, h.Segment, h.Rewrites, h.Previous = r.queue, s.Number, run, previous
	first, found, err := firstBlock(s, h)
	if err != nil {
		return nil, false, err
	}
	proofs := []uint32{segment.Little.Uint32(raw[8:])}
	created := []int64{h.Created}
	if found {
		proofs = append(proofs, first.previous)
		created = append(created, first.appended)
	} else if s.Footer != nil && s.Footer.Blocks == 0 {
		proofs = append(proofs, s.Footer.Chain)
	}
	if mended, ok := correctByte(raw, proofs); ok && mended.Rewrites == run && mended.Holds(s.Number) {
		s.Header = mended
		return r.recoverDictionary(s)
	}
	dictionaries, err := r.dictionaries(s, h, first.offset)
	if err != nil {
		return nil, false, err
	}
	for _, d := range dictionaries {
		try := h
		try.SetDictionary(d.content)
		for _, try.Codec = range []codec.ID{h.Codec, codec.None, codec.LZO, codec.S2, codec.Zstd} {
			for _, try.Created = range created {
				for _, try.Sampled = range []segment.Run{h.Sampled, d.sampled, {}} {
					for _, try.Erases = range []bool{false, true} {
						if try.Encode(); slices.Contains(proofs, try.CRC) {
							s.Header = try
							return d.content, true, nil
						}
					}
				}
			}
		}
	}
	h.Codec, h.CRC = codec.None, first.previous
	h.Dictionary.Bytes = uint32(max(first.offset-segment.HeaderBytes, 0))
	s.Header = h
	return nil, false, nil
}

// correctByte corrects a header with a single wrong byte, verified by its checksum.
func correctByte(raw []byte, proofs []uint32) (segment.Header, bool) {
	try := bytes.Clone(raw)
	for _, crc := range proofs {
		copy(try, segment.SegmentMagic)
		segment.Little.PutUint32(try[8:], crc)
		for i := 12; i < segment.HeaderBytes; i++ {
			for range 256 {
				if checksum.Update(0, try[12:]) == crc {
					h, err := segment.ParseHeader(try)
					return h, err == nil
				}
				try[i]++
			}
		}
	}
	return segment.Header{}, false
}

// unverifiedHeader parses a damaged header without verification.
func unverifiedHeader(raw []byte) (h segment.Header) {
	h.Queue = [16]byte(raw[16:])
	h.Codec, h.Erases = codec.ID(raw[36]), raw[37] == segment.HeaderErases
	h.Created = int64(segment.Little.Uint64(raw[40:]))
	h.Dictionary.Bytes = segment.Little.Uint32(raw[92:])
	h.Dictionary.Hash = codec.DictionaryHash(raw[96:])
	h.Sampled = segment.Run{First: queue.SegmentID(segment.Little.Uint32(raw[112:])), Last: queue.SegmentID(segment.Little.Uint32(raw[116:])), Generation: segment.Little.Uint32(raw[120:])}
	return h
}

// foundBlock is the information about the header in the first block.
type foundBlock struct {
	offset   int64
	previous uint32
	appended int64
}

// firstBlock looks for the first whole block.
func firstBlock(s *segment.File, h segment.Header) (found foundBlock, ok bool, err error) {
	s.Header = h
	v := salvage{s: s, offset: segment.HeaderBytes - 1}
	limit := s.Limit()
	for v.offset < limit {
		if v.offset, err = v.resync(); err != nil || v.offset >= limit {
			return found, false, err
		}
		var b segment.Block
		if kind, err := s.Frame(&b, v.offset); err == nil && kind == segment.FrameBlock {
			return foundBlock{v.offset, b.Previous, b.Appended}, true, nil
		}
	}
	return found, false, nil
}

// knownDictionary is a dictionary of the queue, with the segments that it was trained
// from.
type knownDictionary struct {
	content []byte
	sampled segment.Run
}

// dictionaries returns the candidates for the segment's dictionary: none, the bytes
// between its header and its first block, and those of other segments.
func (r *repairer) dictionaries(s *segment.File, h segment.Header, first int64) ([]knownDictionary, error) {
	found := []knownDictionary{{}}
	for _, size := range []int64{first - segment.HeaderBytes, int64(h.Dictionary.Bytes)} {
		if size <= 0 || size > codec.MaxDictionaryBytes || size > s.Info.Size-segment.HeaderBytes {
			continue
		}
		content := make([]byte, size)
		if err := s.ReadAt(content, segment.HeaderBytes); err != nil {
			return nil, err
		}
		found = append(found, knownDictionary{content, h.Sampled})
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
		s, err := segment.Open(r.options.FS, p.path, p.run.First)
		if err != nil {
			if !segment.IsContent(err) && !errors.Is(err, fs.ErrNotExist) {
				return nil, err
			}
			continue
		}
		content, err := s.Dictionary()
		s.Close()
		if err != nil && !segment.IsContent(err) {
			return nil, err
		}
		same := func(other knownDictionary) bool { return bytes.Equal(other.content, content) }
		if err == nil && len(content) > 0 && !slices.ContainsFunc(r.known, same) {
			r.known = append(r.known, knownDictionary{content, s.Header.Sampled})
		}
	}
	return r.known, nil
}

// recoverDictionary returns the dictionary that a whole header names, from another
// segment if it is damaged in this one; false: it was not found.
func (r *repairer) recoverDictionary(s *segment.File) ([]byte, bool, error) {
	content, err := s.Dictionary()
	if err == nil || !segment.IsContent(err) {
		return content, err == nil, err
	}
	others, err := r.otherDictionaries()
	for _, other := range others {
		if codec.HashDictionary(other.content) == s.Header.Dictionary.Hash {
			return other.content, true, err
		}
	}
	return nil, false, err
}
