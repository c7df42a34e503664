package parquet

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"docstore/internal/checksum"
)

const (
	// maxFooterBytes bounds the size of the metadata.
	maxFooterBytes = 64 << 20
	// footerAhead is the number of bytes at the end of the file that are read first. They
	// contain most footers.
	footerAhead = 64 << 10
	// tailBytes is the length of the footer's length and the magic at the end.
	tailBytes = 8
)

// footer identifies the footer of a file.
type footer struct{ bytes, crc uint32 }

func footerOf(end []byte) footer { return footer{uint32(len(end)), checksum.Of(end)} }

// readFooter returns the end of a file: the metadata, their length, and the magic.
func readFooter(r io.ReaderAt, size int64) ([]byte, error) {
	if size < int64(len(Magic))+tailBytes {
		return nil, fmt.Errorf("%d bytes are too few for a Parquet file", size)
	}
	end, err := readEnd(r, size, min(size, footerAhead))
	if err != nil {
		return nil, err
	}
	tail := end[len(end)-tailBytes:]
	bytes := int64(binary.LittleEndian.Uint32(tail))
	switch magic := string(tail[4:]); {
	case magic == "PARE":
		return nil, errors.New("the Parquet file is encrypted")
	case magic != Magic:
		return nil, errors.New("the file does not end as a Parquet file: is it complete")
	case bytes > size-int64(len(Magic))-tailBytes:
		return nil, fmt.Errorf("the metadata has %d bytes, more than the file", bytes)
	case bytes > maxFooterBytes:
		return nil, fmt.Errorf("the metadata has %d bytes, more than the limit of %d", bytes, maxFooterBytes)
	}
	if bytes += tailBytes; bytes > int64(len(end)) {
		return readEnd(r, size, bytes)
	}
	return end[int64(len(end))-bytes:], nil
}

// readEnd reads the last bytes of a file.
func readEnd(r io.ReaderAt, size, bytes int64) ([]byte, error) {
	end := make([]byte, bytes)
	if n, err := r.ReadAt(end, size-bytes); n < len(end) {
		return nil, fmt.Errorf("reading the end of the file: %w", err)
	}
	return end, nil
}
