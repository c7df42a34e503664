package digests

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"docstore/internal/checksum"
	"docstore/queue"
)

// fileName is the name of the file in the directory of a collection.
const fileName = "DIGESTS"

// The file has the rows, the position of each shard, and a trailer. Numbers are little-endian.
const (
	magic        = "DSTDGST\x00"
	version      = 0
	trailerBytes = 32
)

var (
	errDamaged = errors.New("file is damaged")
	errVersion = errors.New("file has another version")
)

// encodeEnd returns what follows the rows. crc is the checksum of the rows.
func encodeEnd(rows int64, positions []queue.Position, crc uint32) (b []byte, err error) {
	for _, p := range positions {
		if b, err = p.AppendBinary(b); err != nil {
			return nil, err
		}
	}
	b = append(b, magic...)
	b = binary.LittleEndian.AppendUint16(b, version)
	b = append(b, 0, 0)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(positions)))
	b = binary.LittleEndian.AppendUint64(b, uint64(rows))
	b = append(b, 0, 0, 0, 0)
	return binary.LittleEndian.AppendUint32(b, checksum.Update(crc, b)), nil
}

// parse verifies a file and returns its rows and positions.
func parse(b []byte) (rows []byte, positions []queue.Position, err error) {
	if len(b) < trailerBytes {
		return nil, nil, fmt.Errorf("%w: it has %d bytes", errDamaged, len(b))
	}
	trailer := b[len(b)-trailerBytes:]
	if sum := binary.LittleEndian.Uint32(trailer[28:]); checksum.Update(0, b[:len(b)-4]) != sum {
		return nil, nil, fmt.Errorf("%w: its checksum is not %08x", errDamaged, sum)
	}
	if got := binary.LittleEndian.Uint16(trailer[8:]); string(trailer[:8]) != magic || got != version {
		return nil, nil, fmt.Errorf("%w: %d, this program has %d", errVersion, got, version)
	}
	count, shards := binary.LittleEndian.Uint64(trailer[16:]), binary.LittleEndian.Uint32(trailer[12:])
	if reserved := uint32(binary.LittleEndian.Uint16(trailer[10:])) | binary.LittleEndian.Uint32(trailer[24:]); reserved != 0 {
		return nil, nil, fmt.Errorf("%w: reserved bytes are not zero", errDamaged)
	}
	end := uint64(len(b)) - trailerBytes - uint64(shards)*queue.PositionBytes
	if count > uint64(len(b))/rowBytes || count*rowBytes != end {
		return nil, nil, fmt.Errorf("%w: %d bytes for %d rows of %d shards", errDamaged, len(b), count, shards)
	}
	positions = make([]queue.Position, shards)
	for i := range positions {
		if err := positions[i].UnmarshalBinary(bytes.Clone(b[end:][:queue.PositionBytes])); err != nil {
			return nil, nil, fmt.Errorf("%w: %w", errVersion, err)
		}
		end += queue.PositionBytes
	}
	return b[:count*rowBytes], positions, nil
}
