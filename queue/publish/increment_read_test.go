package publish

import (
	"context"
	"io"
	"slices"
	"sync/atomic"
	"testing"

	"docstore/internal/testseed"
	"docstore/queue/bucket"

	"github.com/cockroachdb/errors"
	"github.com/stretchr/testify/require"
)

func TestFindLast(t *testing.T) {
	for last := range uint64(5000) {
		var asked atomic.Int64
		found, err := findLast(func(number uint64) (bool, error) {
			asked.Add(1)
			require.NotZero(t, number)
			return number <= last, nil
		})
		require.NoError(t, err)
		require.Equal(t, last, found)
		require.LessOrEqual(t, asked.Load(), int64(2*probePowers+4*probes))
	}
	failure := errors.New("failure")
	_, err := findLast(func(number uint64) (bool, error) { return number < 100, failure })
	require.ErrorIs(t, err, failure)
}

// measured counts the bytes of increments that were asked for and are not read to the end.
type measured struct {
	bucket.Bucket
	now, most atomic.Int64
}

type measuredReader struct {
	io.ReadCloser
	from  *measured
	bytes int64
}

func (b *measured) Get(ctx context.Context, name string, offset, length int64) (io.ReadCloser, error) {
	body, err := b.Bucket.Get(ctx, name, offset, length)
	if err != nil {
		return nil, err
	}
	now := b.now.Add(length)
	for most := b.most.Load(); now > most && !b.most.CompareAndSwap(most, now); most = b.most.Load() {
	}
	return measuredReader{body, b, length}, nil
}

func (r measuredReader) Close() error {
	r.from.now.Add(-r.bytes)
	return r.ReadCloser.Close()
}

// TestIncrementsOfAllSizesAreReadTogether reads increments of random sizes. They are those that
// were put, and few bytes are in flight at the same time.
func TestIncrementsOfAllSizesAreReadTogether(t *testing.T) {
	rng := testseed.Rand(t)
	b := &measured{Bucket: newBucket(t)}
	base := Ref{Number: 1, Digest: Digest{1}}
	p := &Publisher{bucket: b.Bucket, log: &Log{}, options: (*Options)(nil).withDefaults()}
	var contents [][]byte
	end := int64(0)
	for n := range 20 {
		size := int64(1 + rng.IntN(2000))
		if rng.IntN(3) == 0 {
			size = 1 + rng.Int64N(12<<20)
		}
		data := slices.Repeat([]byte{byte(n)}, int(size))
		i := Increment{Base: base, Number: uint64(n + 1), Parts: []Part{{Segment: 2, From: end, To: end + size}}}
		_, err := p.put(t.Context(), &i, data, 1)
		require.NoError(t, err)
		contents, end = append(contents, data), end+size
	}
	r := bucketIncrements{b, 1}
	for from := 0; ; {
		list, end, err := r.ReadIncrements(t.Context(), base, uint64(from+1), 1+rng.IntN(2*MaxAhead))
		require.NoError(t, err)
		total := int64(0)
		for _, i := range list {
			require.EqualValues(t, from+1, i.Number)
			require.True(t, slices.Equal(contents[from], i.data))
			total += i.Bytes()
			from++
		}
		require.True(t, total <= maxAheadBytes || len(list) == 1)
		if end {
			require.Len(t, contents, from)
			break
		}
		require.NotEmpty(t, list)
	}
	require.LessOrEqual(t, b.most.Load(), int64(maxAheadBytes+MaxAhead*firstBytes))
}
