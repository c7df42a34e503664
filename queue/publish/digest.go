package publish

import (
	"crypto/sha256"
	"encoding/hex"

	"github.com/cockroachdb/errors"
)

// Digest is the SHA-256 of an object. Its text form has 64 hexadecimal digits.
type Digest [sha256.Size]byte

// Hex16 is a queue.FooterDigest. Its text form has 32 hexadecimal digits.
type Hex16 [16]byte

// String returns the text form.
func (d Digest) String() string { return hex.EncodeToString(d[:]) }

// MarshalText implements encoding.TextMarshaler.
func (d Digest) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, d[:]), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *Digest) UnmarshalText(text []byte) error { return parseHex(d[:], text) }

// MarshalText implements encoding.TextMarshaler.
func (d Hex16) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, d[:]), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *Hex16) UnmarshalText(text []byte) error { return parseHex(d[:], text) }

// parseHex parses exactly the digits that fill dst.
func parseHex(dst, text []byte) error {
	if len(text) == hex.EncodedLen(len(dst)) {
		if _, err := hex.Decode(dst, text); err == nil {
			return nil
		}
	}
	return errors.Newf("publish: %.100q does not have %d hexadecimal digits", text, hex.EncodedLen(len(dst)))
}
