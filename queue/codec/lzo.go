//go:build !nolzo

package codec

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"github.com/rasky/go-lzo"
)

// lzoCodec is LZO1X, which the original document store used, by github.com/rasky/go-lzo.
// That library is under the GPL; the build tag nolzo leaves it out. Its defects are
// contained:
//
//   - it decodes at least one valid stream wrongly, so every encoded document is decoded
//     and compared before it is used;
//   - it has no output limit, and each input byte can decode to 255, so lzoDecodedBytes
//     computes the length of the output first;
//   - it panics on some damaged streams, so a panic is an error, and a document that it
//     cannot encode is stored uncompressed;
//   - it fails on readers that return less than requested, so it reads from memory.
var lzoCodec = Codec{
	ID:         LZO,
	Name:       "lzo",
	NewEncoder: func([]byte) (Encoder, error) { return lzoCoder{}, nil },
	NewDecoder: func([]byte) (Decoder, error) { return lzoCoder{}, nil },
}

func init() { codecs = append(codecs, lzoCodec) }

type lzoCoder struct{}

var errLZO = errors.New("document is not a valid lzo stream")

func (c lzoCoder) Encode(dst, document []byte) ([]byte, bool) {
	return c.encodeWith(lzo.Compress1X, dst, document)
}

// encodeWith verifies the output of compress.
func (c lzoCoder) encodeWith(compress func([]byte) []byte, dst, document []byte) (out []byte, ok bool) {
	defer func() {
		if recover() != nil {
			out, ok = dst, false
		}
	}()
	stored := compress(document)
	if len(stored) >= len(document) {
		return dst, false
	}
	s := getBuffer()
	defer s.release()
	back, err := c.Decode(s.bytes[:0], stored, len(document))
	s.bytes = back
	if err != nil || !bytes.Equal(back, document) {
		return dst, false
	}
	return append(dst, stored...), true
}

func (lzoCoder) Decode(dst, stored []byte, rawBytes int) (out []byte, err error) {
	if n, ok := lzoDecodedBytes(stored); !ok || n != rawBytes {
		return dst, errLZO
	}
	defer func() {
		if recover() != nil {
			out, err = dst, errLZO
		}
	}()
	document, err := lzo.Decompress1X(bytes.NewReader(stored), len(stored), rawBytes)
	if err != nil {
		return dst, fmt.Errorf("lzo: %w", err)
	}
	if len(document) != rawBytes {
		return dst, errDecodedLength
	}
	return append(slices.Grow(dst, rawBytes), document...), nil
}
