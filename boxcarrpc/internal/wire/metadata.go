package wire

import "encoding/binary"

// Metadata is a list of pairs of a key, of at least one byte, and a value, each preceded by
// its length as a uvarint:
//
//	key length, key, value length, value, key length, ...
//
// An empty block has no pairs.

// MaxMetadataBytes is the size of the largest block of metadata, or of the two blocks of a
// RESPONSE together.
const MaxMetadataBytes = 16 << 10

// AppendPair appends a pair to a block.
func AppendPair(dst []byte, key, value string) []byte {
	dst = append(binary.AppendUvarint(dst, uint64(len(key))), key...)
	return append(binary.AppendUvarint(dst, uint64(len(value))), value...)
}

// CutPair returns the first pair of a block and the rest; ok is false if there is no whole
// pair.
func CutPair(b []byte) (key, value, rest []byte, ok bool) {
	if key, b, ok = cutString(b); !ok || len(key) == 0 {
		return nil, nil, nil, false
	}
	value, b, ok = cutString(b)
	return key, value, b, ok
}

func cutString(b []byte) (s, rest []byte, ok bool) {
	length, n := binary.Uvarint(b)
	if n <= 0 || length > uint64(len(b)-n) {
		return nil, nil, false
	}
	return b[n:][:length:length], b[n:][length:], true
}

// ValidMetadata reports whether a block is well formed and not too long.
func ValidMetadata(b []byte) bool {
	ok := len(b) <= MaxMetadataBytes
	for ok && len(b) > 0 {
		_, _, b, ok = CutPair(b)
	}
	return ok
}

// checkMetadata returns an error if a block is not valid.
func (f Frame) checkMetadata(b []byte) error {
	switch {
	case len(b) > MaxMetadataBytes:
		return malformed("metadata of %v has %d bytes, at most %d are allowed", f.Type, len(b), MaxMetadataBytes)
	case !ValidMetadata(b):
		return malformed("metadata of %v is not a list of pairs", f.Type)
	}
	return nil
}

// RequestMetadataBytes returns the bytes of a REQUEST that metadata takes.
func RequestMetadataBytes(metadata []byte) int {
	if len(metadata) == 0 {
		return 0
	}
	return 2 + len(metadata)
}

// ResponseMetadataBytes returns the bytes of a RESPONSE that metadata takes.
func ResponseMetadataBytes(header, trailer []byte) int {
	if len(header)+len(trailer) == 0 {
		return 0
	}
	return 4 + len(header) + len(trailer)
}

// appendRequestMetadata appends the metadata of a REQUEST with FlagMetadata.
func appendRequestMetadata(dst, metadata []byte) []byte {
	dst = binary.LittleEndian.AppendUint16(dst, uint16(len(metadata)))
	return append(dst, metadata...)
}

// cutRequestMetadata splits the payload after the method into metadata and data.
func (f Frame) cutRequestMetadata(p []byte) (metadata, data []byte, err error) {
	if f.Flags&FlagMetadata == 0 {
		return nil, p, nil
	}
	if len(p) < 2 {
		return nil, nil, malformed("%v ends within its metadata", f.Type)
	}
	n := int(binary.LittleEndian.Uint16(p))
	if n == 0 || n > len(p)-2 {
		return nil, nil, malformed("%v has %d bytes of metadata and room for %d", f.Type, n, len(p)-2)
	}
	metadata, data = p[2:][:n:n], p[2:][n:]
	return metadata, data, f.checkMetadata(metadata)
}

// RequestMetadata returns the metadata of a REQUEST that Request has parsed; it refers to
// the frame.
func (f Frame) RequestMetadata() []byte {
	length := int(binary.LittleEndian.Uint16(f.Payload[requestSize-2:]))
	metadata, _, _ := f.cutRequestMetadata(f.Payload[requestSize+length:])
	return metadata
}

// appendResponseMetadata appends the metadata of a RESPONSE with FlagMetadata.
func appendResponseMetadata(dst, header, trailer []byte) []byte {
	dst = binary.LittleEndian.AppendUint16(dst, uint16(len(header)))
	dst = binary.LittleEndian.AppendUint16(dst, uint16(len(trailer)))
	return append(append(dst, header...), trailer...)
}

// cutResponseMetadata splits the payload after the head into metadata and data.
func (f Frame) cutResponseMetadata(p []byte) (header, trailer, data []byte, err error) {
	if f.Flags&FlagMetadata == 0 {
		return nil, nil, p, nil
	}
	if len(p) < 4 {
		return nil, nil, nil, malformed("%v ends within its metadata", f.Type)
	}
	n, m := int(binary.LittleEndian.Uint16(p)), int(binary.LittleEndian.Uint16(p[2:]))
	switch p = p[4:]; {
	case n+m == 0 || n+m > len(p):
		return nil, nil, nil, malformed("%v has %d bytes of metadata and room for %d", f.Type, n+m, len(p))
	case n+m > MaxMetadataBytes:
		return nil, nil, nil, f.checkMetadata(p[:n+m])
	}
	header, trailer, data = p[:n:n], p[n:][:m:m], p[n+m:]
	if err = f.checkMetadata(header); err == nil {
		err = f.checkMetadata(trailer)
	}
	return header, trailer, data, err
}

// ResponseMetadata returns the metadata of a RESPONSE that Response has parsed; it refers
// to the frame.
func (f Frame) ResponseMetadata() (header, trailer []byte) {
	header, trailer, _, _ = f.cutResponseMetadata(f.Payload[responseSize:])
	return header, trailer
}
