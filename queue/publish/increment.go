package publish

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"docstore/queue"
	"docstore/queue/bucket"

	"github.com/cockroachdb/errors"
)

// Limits of increments.
const (
	// MaxIncrements bounds the increments of a manifest.
	MaxIncrements = 4_000
	// incrementBytes is the minimum size of an increment that does not hold all committed
	// bytes.
	incrementBytes = 8 << 20
	// maxIncrementBytes bounds the segment's bytes in an increment.
	maxIncrementBytes = 64 << 20
	// maxIncrementHeader bounds the line before them.
	maxIncrementHeader = 4 << 10

	incrementFormat = 1
	incrementPrefix = "increment/"
)

// Increment describes committed bytes of the segment that follows a manifest. Its object is
// this header as a line of JSON, and then the bytes. Creating the object announces the
// entries. The increments of a manifest are numbered from 1 without gaps, so a create-only
// put decides which of two publishers continues them.
type Increment struct {
	Format   int       `json:"format"`
	Base     Ref       `json:"base"` // the manifest that it extends
	Number   uint64    `json:"number"`
	Previous Digest    `json:"previous"` // of the header of the increment before
	Epoch    uint64    `json:"epoch"`    // of the publisher
	Nonce    string    `json:"nonce"`    // random: identifies the writer after a lost response
	Time     time.Time `json:"time"`
	// Segment is the segment whose bytes between From and To follow the header. A new
	// publisher begins with an empty range, which ends those of earlier epochs.
	Segment queue.SegmentID `json:"segment"`
	From    int64           `json:"from"`
	To      int64           `json:"to"`
	Prefix  Digest          `json:"prefix"`           // of the segment's bytes before To
	Sealed  bool            `json:"sealed,omitempty"` // To is the end of the sealed segment
}

// incrementName returns the name of an object.
func incrementName(base Ref, number uint64) string {
	return fmt.Sprintf("%s%010d-%s/%06d", incrementPrefix, base.Number, base.Digest, number)
}

// parseIncrementName returns the number of the manifest in the name of an increment.
func parseIncrementName(name string) (base uint64, ok bool) {
	digits, _, found := strings.Cut(strings.TrimPrefix(name, incrementPrefix), "-")
	base, err := strconv.ParseUint(digits, 10, 64)
	return base, found && err == nil && strings.HasPrefix(name, incrementPrefix)
}

// encode returns the header of the object, and its digest.
func (i *Increment) encode() ([]byte, Digest, error) {
	header, err := json.Marshal(i)
	if err != nil {
		return nil, Digest{}, err
	}
	header = append(header, '\n')
	return header, sha256.Sum256(header), nil
}

// decodeIncrement parses an object, or the beginning of one. It returns the bytes after the
// header and the header's digest.
func decodeIncrement(object []byte, base Ref, number uint64) (*Increment, []byte, Digest, error) {
	name := incrementName(base, number)
	end := bytes.IndexByte(object[:min(len(object), maxIncrementHeader)], '\n') + 1
	if end == 0 {
		return nil, nil, Digest{}, corrupt("%s has no header", name)
	}
	i := new(Increment)
	if err := json.Unmarshal(object[:end], i); err != nil {
		return nil, nil, Digest{}, corrupt("%s: %v", name, err)
	}
	switch {
	case i.Format > incrementFormat:
		return nil, nil, Digest{}, errors.Wrapf(ErrNewerVersion, "%s", name)
	case i.Format < 1 || i.Base != base || i.Number != number:
		return nil, nil, Digest{}, corrupt("%s holds increment %d of manifest %d", name, i.Number, i.Base.Number)
	case i.From < 0 || i.To < i.From || i.To-i.From > maxIncrementBytes || i.To > queue.MaxSegmentBytes || i.Segment == 0:
		return nil, nil, Digest{}, corrupt("%s has the range %d to %d of segment %d", name, i.From, i.To, i.Segment)
	}
	return i, object[end:], sha256.Sum256(object[:end]), nil
}

// readIncrement reads an increment and its bytes. The error matches bucket.ErrNotExist if
// there is none with this number.
func readIncrement(ctx context.Context, b bucket.Bucket, base Ref, number uint64) (*Increment, []byte, Digest, error) {
	// Without a length the client does not charge the maximum to its limit.
	body, err := b.Get(ctx, incrementName(base, number), 0, -1)
	if err != nil {
		return nil, nil, Digest{}, err
	}
	defer body.Close()
	object, err := io.ReadAll(io.LimitReader(body, maxIncrementHeader+maxIncrementBytes+1))
	if err != nil {
		return nil, nil, Digest{}, err
	}
	i, data, digest, err := decodeIncrement(object, base, number)
	if err == nil && int64(len(data)) != i.To-i.From {
		err = corrupt("%s has %d bytes after its header, want %d", incrementName(base, number), len(data), i.To-i.From)
	}
	return i, data, digest, err
}

// readIncrementHeader is readIncrement without the bytes.
func readIncrementHeader(ctx context.Context, b bucket.Bucket, base Ref, number uint64) (*Increment, Digest, error) {
	body, err := b.Get(ctx, incrementName(base, number), 0, maxIncrementHeader)
	if err != nil {
		return nil, Digest{}, err
	}
	defer body.Close()
	object, err := io.ReadAll(body)
	if err != nil {
		return nil, Digest{}, err
	}
	i, _, digest, err := decodeIncrement(object, base, number)
	return i, digest, err
}

// newestIncrement returns the number of the newest increment of a manifest, 0 if there is
// none.
func newestIncrement(ctx context.Context, b bucket.Bucket, base Ref) (uint64, error) {
	return newestObject(ctx, b, func(number uint64) string { return incrementName(base, number) })
}

// newestObject returns the last number of objects that are numbered from 1 without gaps, 0
// if there are none. It lists nothing.
func newestObject(ctx context.Context, b bucket.Bucket, name func(number uint64) string) (uint64, error) {
	return findLast(func(number uint64) (bool, error) {
		_, err := b.Head(ctx, name(number))
		if errors.Is(err, bucket.ErrNotExist) {
			return false, nil
		}
		return err == nil, err
	})
}

// findLast returns the last number for which holds returns true, if it does so for all
// numbers from 1 to that one, and for no later ones. It tries powers of two, and then
// halves the range.
func findLast(holds func(uint64) (bool, error)) (uint64, error) {
	low, high := uint64(0), uint64(1) // low holds, or is 0; high is to be tried
	for {
		ok, err := holds(high)
		if err != nil {
			return 0, err
		}
		if !ok {
			break
		}
		low, high = high, 2*high
	}
	for low+1 < high {
		middle := low + (high-low)/2
		ok, err := holds(middle)
		switch {
		case err != nil:
			return 0, err
		case ok:
			low = middle
		default:
			high = middle
		}
	}
	return low, nil
}

// lastWithin returns the last increment that ends at or before an offset of its segment,
// with the digest of its header. It is nil if there is none.
func lastWithin(ctx context.Context, b bucket.Bucket, base Ref, offset int64) (*Increment, Digest, error) {
	var last *Increment
	var lastDigest Digest
	_, err := findLast(func(number uint64) (bool, error) {
		i, digest, err := readIncrementHeader(ctx, b, base, number)
		if errors.Is(err, bucket.ErrNotExist) || err == nil && i.To > offset {
			return false, nil
		}
		if err == nil && (last == nil || i.Number > last.Number) {
			last, lastDigest = i, digest
		}
		return err == nil, err
	})
	return last, lastDigest, err
}
