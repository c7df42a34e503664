package publish

import (
	"crypto/sha256"
	"encoding/hex"

	"github.com/cockroachdb/errors"
)

// Digest is the SHA-256 of an object. Its text form has 64 hexadecimal digits.
type Digest [sha256.Size]byte

// String returns the text form.
func (d Digest) String() string { return hex.EncodeToString(d[:]) }

// MarshalText implements encoding.TextMarshaler.
func (d Digest) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *Digest) UnmarshalText(text []byte) error {
	if len(text) == 2*len(d) {
		if _, err := hex.Decode(d[:], text); err == nil {
			return nil
		}
	}
	return errors.Newf("publish: digest %.100q does not have 64 hexadecimal digits", text)
}
