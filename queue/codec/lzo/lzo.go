//go:build !nolzo

package lzo

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/rasky/go-lzo"

	"docstore/queue/codec"
)

func init() {
	codec.Register(codec.Codec{
		ID:         codec.LZO,
		Name:       "lzo",
		NewEncoder: func([]byte) (codec.Encoder, error) { return coder{}, nil },
		NewDecoder: func([]byte) (codec.Decoder, error) { return coder{}, nil },
	})
}

type coder struct{}

var (
	errStream = errors.New("document is not a valid lzo stream")
	errLength = errors.New("document decodes to a wrong length")
)

// maxBufferBytes is the maximum size of a buffer that is kept for the next call.
const maxBufferBytes = 1 << 20

// buffers have what encoded documents decode to.
var buffers = sync.Pool{New: func() any { return new([]byte) }}

func (c coder) Encode(dst, document []byte) ([]byte, bool) {
	return c.encodeWith(lzo.Compress1X, dst, document)
}

// encodeWith verifies the output of compress.
func (c coder) encodeWith(compress func([]byte) []byte, dst, document []byte) (out []byte, ok bool) {
	defer func() {
		if recover() != nil {
			out, ok = dst, false
		}
	}()
	stored := compress(document)
	if len(stored) >= len(document) {
		return dst, false
	}
	buffer := buffers.Get().(*[]byte)
	back, err := c.Decode((*buffer)[:0], stored, len(document))
	if *buffer = back; cap(back) <= maxBufferBytes {
		defer buffers.Put(buffer)
	}
	if err != nil || !bytes.Equal(back, document) {
		return dst, false
	}
	return append(dst, stored...), true
}

func (coder) Decode(dst, stored []byte, rawBytes int) (out []byte, err error) {
	if n, ok := decodedBytes(stored); !ok || n != rawBytes {
		return dst, errStream
	}
	defer func() {
		if recover() != nil {
			out, err = dst, errStream
		}
	}()
	document, err := lzo.Decompress1X(bytes.NewReader(stored), len(stored), rawBytes)
	if err != nil {
		return dst, fmt.Errorf("lzo: %w", err)
	}
	if len(document) != rawBytes {
		return dst, errLength
	}
	return append(slices.Grow(dst, rawBytes), document...), nil
}
