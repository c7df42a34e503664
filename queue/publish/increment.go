package publish

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"docstore/queue"
	"docstore/queue/bucket"

	"github.com/cockroachdb/errors"
	"golang.org/x/sync/errgroup"
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
	// maxHeaderBytes and maxPartBytes bound the line before them: for one shard, and for
	// each other one.
	maxHeaderBytes = 4 << 10
	maxPartBytes   = 200
	// MaxAhead bounds the increments that are read at the same time, and maxAheadBytes their
	// bytes: one of the maximum size fits.
	MaxAhead      = 64
	maxAheadBytes = maxIncrementBytes
	// firstBytes is read of each increment first. It holds the header, which states the size of
	// the rest, and most increments have no rest.
	firstBytes = 256 << 10

	// incrementFormat is the format of an increment of one shard, and shardsIncrementFormat that
	// of several.
	incrementFormat       = 1
	shardsIncrementFormat = 2
	incrementPrefix       = "increment/"
)

// Increment describes committed bytes of the segments that follow a manifest. Its object is
// this header as a line of JSON, and then the bytes. Creating the object announces the
// entries. The increments of a manifest are numbered from 1 without gaps, so a create-only
// put decides which of two publishers continues them.
type Increment struct {
	Base     Ref       `json:"base"` // the manifest that it extends
	Number   uint64    `json:"number"`
	Previous Digest    `json:"previous"` // of the header of the increment before
	Epoch    uint64    `json:"epoch"`    // of the publisher
	Nonce    string    `json:"nonce"`    // random: identifies the writer after a lost response
	Time     time.Time `json:"time"`
	// Parts are those of all shards. Their bytes follow the header in this order.
	Parts []Part `json:"-"`
}

// incrementHeader is the JSON of an increment.
type incrementHeader struct {
	Format int `json:"format"`
	*Increment
	Part          // of the only shard
	Shards []Part `json:"shards,omitempty"` // of several
}

// Part describes committed bytes of the open segment of one shard.
type Part struct {
	// Segment is the segment whose bytes between From and To follow the header. A new
	// publisher begins with an empty range, which ends those of earlier epochs.
	Segment queue.SegmentID `json:"segment"`
	From    int64           `json:"from"`
	To      int64           `json:"to"`
	Prefix  Digest          `json:"prefix"`           // of the segment's bytes before To
	Sealed  bool            `json:"sealed,omitempty"` // To is the end of the sealed segment
}

// complete reports whether a segment is sealed: a manifest follows.
func (i *Increment) complete() bool {
	return slices.ContainsFunc(i.Parts, func(p Part) bool { return p.Sealed })
}

// Bytes returns the number of bytes after the header.
func (i *Increment) Bytes() (size int64) {
	for _, p := range i.Parts {
		size += p.To - p.From
	}
	return size
}

// validate returns an error unless the parts are within their limits.
func (i *Increment) validate() error {
	total := int64(0)
	for n, p := range i.Parts {
		size := p.To - p.From
		if p.From < 0 || size < 0 || size > maxIncrementBytes-total || p.To > queue.MaxSegmentBytes || p.Segment == 0 {
			return errors.Newf("has the range %d to %d of segment %d in part %d", p.From, p.To, p.Segment, n)
		}
		total += size
	}
	return nil
}

// StoredIncrement is an increment as it was read.
type StoredIncrement struct {
	*Increment
	header int64  // bytes of the header
	digest Digest // of the header
	data   []byte // nil: only the header was read
}

// of returns the part of a queue, and its bytes.
func (i StoredIncrement) of(n int) (Part, []byte) {
	offset := int64(0)
	for _, p := range i.Parts[:n] {
		offset += p.To - p.From
	}
	part := i.Parts[n]
	return part, i.data[offset : offset+part.To-part.From]
}

// IncrementReader reads the increments of a manifest.
type IncrementReader interface {
	// ReadIncrements returns the increments from number from on, in order: at most so many,
	// at most MaxAhead, and at most those that may be in memory at the same time, but at least
	// one if there is one. end: the increment after them does not exist.
	ReadIncrements(ctx context.Context, base Ref, from uint64, most int) (list []StoredIncrement, end bool, err error)
	// ReadHeader returns an increment without its bytes. The error matches bucket.ErrNotExist
	// if there is none with this number.
	ReadHeader(ctx context.Context, base Ref, number uint64) (StoredIncrement, error)
}

// bucketIncrements reads increments of a bucket.
type bucketIncrements struct {
	bucket bucket.Bucket
	queues int // of the manifest
}

// NewIncrementReader returns a reader of the increments of manifests with the layout of m.
func NewIncrementReader(b bucket.Bucket, m *Manifest) IncrementReader {
	return bucketIncrements{b, m.Layout.Shards}
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
	h := incrementHeader{Format: incrementFormat, Increment: i, Part: i.Parts[0]}
	if len(i.Parts) > 1 {
		h.Format, h.Part, h.Shards = shardsIncrementFormat, Part{}, i.Parts
	}
	header, err := json.Marshal(h)
	if err != nil {
		return nil, Digest{}, err
	}
	header = append(header, '\n')
	return header, sha256.Sum256(header), nil
}

// headerLimit returns the maximum size of the header of an increment of so many shards.
func headerLimit(queues int) int64 { return maxHeaderBytes + int64(queues-1)*maxPartBytes }

// decodeIncrement parses an object, or the beginning of one. It returns the bytes after the
// header.
func decodeIncrement(object []byte, base Ref, number uint64, queues int) (StoredIncrement, []byte, error) {
	name := incrementName(base, number)
	end := bytes.IndexByte(object[:min(int64(len(object)), headerLimit(queues))], '\n') + 1
	if end == 0 {
		return StoredIncrement{}, nil, corrupt("%s has no header", name)
	}
	i := new(Increment)
	h := incrementHeader{Increment: i}
	if err := json.Unmarshal(object[:end], &h); err != nil {
		return StoredIncrement{}, nil, corrupt("%s: %v", name, err)
	}
	if i.Parts = h.Shards; len(i.Parts) == 0 {
		i.Parts = []Part{h.Part}
	}
	switch {
	case h.Format > shardsIncrementFormat:
		return StoredIncrement{}, nil, errors.Wrapf(ErrNewerVersion, "%s", name)
	case h.Format < 1 || i.Base != base || i.Number != number:
		return StoredIncrement{}, nil, corrupt("%s holds increment %d of manifest %d", name, i.Number, i.Base.Number)
	case (h.Format == shardsIncrementFormat) != (len(i.Parts) > 1), len(h.Shards) == 1:
		return StoredIncrement{}, nil, corrupt("%s has %d parts and format %d", name, len(i.Parts), h.Format)
	case len(i.Parts) != queues:
		return StoredIncrement{}, nil, corrupt("%s has %d parts, and the manifest %d queues", name, len(i.Parts), queues)
	}
	if err := i.validate(); err != nil {
		return StoredIncrement{}, nil, corrupt("%s %v", name, err)
	}
	return StoredIncrement{Increment: i, header: int64(end), digest: sha256.Sum256(object[:end])}, object[end:], nil
}

// ReadIncrements implements IncrementReader. It reads the beginnings concurrently, and then
// the rests of those that fit into maxAheadBytes.
func (r bucketIncrements) ReadIncrements(ctx context.Context, base Ref, from uint64, most int) (list []StoredIncrement, end bool, err error) {
	begun := make([]StoredIncrement, min(most, MaxAhead))
	group, limited := errgroup.WithContext(ctx)
	for n := range begun {
		group.Go(func() (err error) {
			begun[n], err = r.begin(limited, base, from+uint64(n), max(firstBytes, headerLimit(r.queues)))
			if errors.Is(err, bucket.ErrNotExist) {
				return nil
			}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, false, err
	}
	total := int64(0)
	for _, i := range begun {
		if end = i.Increment == nil; end {
			break
		}
		if total += i.Bytes(); len(list) > 0 && total > maxAheadBytes {
			break
		}
		list = append(list, i)
	}
	group, limited = errgroup.WithContext(ctx)
	for n := range list {
		group.Go(func() error { return r.complete(limited, &list[n]) })
	}
	return list, end, group.Wait()
}

// begin reads so many bytes of an increment, header included.
func (r bucketIncrements) begin(ctx context.Context, base Ref, number uint64, length int64) (StoredIncrement, error) {
	body, err := r.bucket.Get(ctx, incrementName(base, number), 0, length)
	if err != nil {
		return StoredIncrement{}, err
	}
	defer body.Close()
	object, err := io.ReadAll(body)
	if err != nil {
		return StoredIncrement{}, err
	}
	i, data, err := decodeIncrement(object, base, number, r.queues)
	i.data = data
	return i, err
}

// complete reads the bytes that begin has left.
func (r bucketIncrements) complete(ctx context.Context, i *StoredIncrement) error {
	there, size := int64(len(i.data)), i.Bytes()
	name := incrementName(i.Base, i.Number)
	if there < size {
		// One byte more shows that the object is too long.
		body, err := r.bucket.Get(ctx, name, i.header+there, size-there+1)
		if err != nil {
			return err
		}
		defer body.Close()
		data := make([]byte, size+1)
		n, err := io.ReadFull(body, data[copy(data, i.data):])
		if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
			return err
		}
		i.data = data[:there+int64(n)]
	}
	if int64(len(i.data)) != size {
		return corrupt("%s has %d bytes after its header, want %d", name, len(i.data), size)
	}
	return nil
}

// ReadHeader implements IncrementReader.
func (r bucketIncrements) ReadHeader(ctx context.Context, base Ref, number uint64) (StoredIncrement, error) {
	i, err := r.begin(ctx, base, number, headerLimit(r.queues))
	i.data = nil
	return i, err
}

// NewestIncrement returns the number of the newest increment of a manifest, 0 if there is
// none.
func NewestIncrement(ctx context.Context, b bucket.Bucket, base Ref) (uint64, error) {
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

// Numbers are tried concurrently: powers of probeFactor until one does not hold, so that few
// requests suffice for small numbers, and then probes numbers that divide the range.
const (
	probeFactor = 8
	probePowers = 5
	probes      = 15
)

// findLast returns the last number for which holds returns true, if it does so for all
// numbers from 1 to that one, and for no later ones. It calls holds concurrently.
func findLast(holds func(uint64) (bool, error)) (uint64, error) {
	low, high := uint64(0), uint64(0) // low holds, or is 0; high does not hold, 0: not known
	for high == 0 {
		numbers := make([]uint64, probePowers)
		next := max(low*probeFactor, 1)
		for i := range numbers {
			numbers[i], next = next, next*probeFactor
		}
		if err := narrow(&low, &high, numbers, holds); err != nil {
			return 0, err
		}
	}
	for low+1 < high {
		var numbers []uint64
		step := (high - low + probes) / (probes + 1)
		for n := low + step; n < high; n += step {
			numbers = append(numbers, n)
		}
		if err := narrow(&low, &high, numbers, holds); err != nil {
			return 0, err
		}
	}
	return low, nil
}

// narrow tries ascending numbers between low and high.
func narrow(low, high *uint64, numbers []uint64, holds func(uint64) (bool, error)) error {
	results := make([]bool, len(numbers))
	var group errgroup.Group
	for i, number := range numbers {
		group.Go(func() (err error) {
			results[i], err = holds(number)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	for i, number := range numbers {
		if !results[i] {
			*high = number
			return nil
		}
		*low = number
	}
	return nil
}

// lastWithin returns the last increment that ends at or before an offset of the segment of a
// queue. Its Increment is nil if there is none.
func lastWithin(ctx context.Context, r IncrementReader, base Ref, queue int, offset int64) (StoredIncrement, error) {
	var mu sync.Mutex
	read := map[uint64]StoredIncrement{}
	last, err := findLast(func(number uint64) (bool, error) {
		i, err := r.ReadHeader(ctx, base, number)
		if errors.Is(err, bucket.ErrNotExist) || err == nil && i.Parts[queue].To > offset {
			return false, nil
		}
		mu.Lock()
		defer mu.Unlock()
		read[number] = i
		return err == nil, err
	})
	return read[last], err
}
