// Package checksum is the one checksum of the project's formats: CRC-32C
// (Castagnoli), which processors compute in hardware. It tells damage from
// health; it is no protection against somebody who means to deceive.
//
// The checksum of zeros is not zero, so that a region which was never written
// does not pass for a record with a checksum of its own.
package checksum

import "hash/crc32"

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Of returns the checksum of the parts in their order, as if they were one. It
// allocates nothing by itself, but the parts escape: take them from the heap
// where that matters.
func Of(parts ...[]byte) uint32 {
	var crc uint32
	for _, part := range parts {
		crc = Update(crc, part)
	}
	return crc
}

// Update returns the checksum of the bytes after crc followed by p. Behind the
// zero crc are no bytes.
func Update(crc uint32, p []byte) uint32 {
	return crc32.Update(crc, castagnoli, p)
}
