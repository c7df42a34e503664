// Package wire is the byte form of Boxcar's frames, and nothing else: it
// appends frames to byte slices and parses them, without a connection, a clock
// or any state. docs/format/boxcar.md is its specification.
//
// Every frame is a header of 16 bytes and a payload of at most 32 KiB, integers
// little-endian:
//
//	0        4        8        12     13      14         16
//	| crc    | length | lane   | type | flags | reserved | payload ... |
//
// The CRC-32C covers every byte of the frame after itself. TCP's own checksum
// is 16 bits and does not cover what a bad network card or switch does to a
// packet in its memory; an answer that is wrong and looks right is the one
// failure that a caller cannot handle, and the check costs a tenth of a
// microsecond a kilobyte.
//
// Parsing keeps three results apart: a frame, the need for more bytes, and
// malformed bytes, after which nothing on the connection can be trusted.
package wire
