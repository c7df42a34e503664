// Package checksum computes the checksum of all formats of the project: CRC-32C
// (Castagnoli), for which processors have instructions. It detects accidental damage; it
// is no protection against deliberate changes.
//
// The checksum of zeros is not zero, so a region that was never written is not a valid
// record.
package checksum

import "hash/crc32"

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Of returns the checksum of the concatenated parts. It does not allocate, but the parts
// escape to the heap.
func Of(parts ...[]byte) uint32 {
	var crc uint32
	for _, part := range parts {
		crc = Update(crc, part)
	}
	return crc
}

// Update returns the checksum of p appended to data with the checksum crc. The checksum
// of no data is 0.
func Update(crc uint32, p []byte) uint32 {
	return crc32.Update(crc, castagnoli, p)
}
