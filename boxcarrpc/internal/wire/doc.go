// Package wire encodes and decodes Boxcar's frames. It appends frames to byte slices and
// parses them, without a connection, a clock or any state. docs/format/boxcar.md is the
// specification.
//
// Every frame is a header of 16 bytes and a payload of at most 32 KiB, integers
// little-endian:
//
//	0        4        8        12     13      14         16
//	| crc    | length | lane   | type | flags | reserved | payload ... |
//
// The CRC-32C covers every byte of the frame after itself. TCP's checksum has only 16 bits
// and does not detect corruption in the memory of a network card or switch. A wrong
// response that looks right is the one failure that a caller cannot handle, and the check
// costs 0.1 us per KB.
//
// Parsing distinguishes three results: a frame, the need for more bytes, and malformed
// bytes, after which the connection must be closed.
package wire
