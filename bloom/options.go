package bloom

import (
	"math"

	"github.com/cockroachdb/errors"
)

// The defaults of Options, and what they may be set to.
const (
	DefaultFalsePositiveRate = 0.02
	MinFalsePositiveRate     = 0.0001
	MaxFalsePositiveRate     = 0.5

	DefaultPageBytes = 4 << 10
	MinPageBytes     = 64
	MaxPageBytes     = 1 << 20
)

// MaxKeyBytes is the size of the largest key.
const MaxKeyBytes = 64 << 10

// Options are how a filter is built. The zero value works, and so does a nil
// *Options. Filters of different options can be used side by side.
type Options struct {
	// FalsePositiveRate is the share of keys that are not in the table and yet
	// get the answer "maybe". The default is DefaultFalsePositiveRate.
	FalsePositiveRate float64
	// PageBytes is the size of a page, a power of two. The default is
	// DefaultPageBytes.
	PageBytes int
}

// Validate reports all that is wrong with the options.
func (o *Options) Validate() error {
	filled := o.withDefaults()
	var faults []error
	if rate := filled.FalsePositiveRate; !(rate >= MinFalsePositiveRate && rate <= MaxFalsePositiveRate) {
		faults = append(faults, errors.Newf("bloom: false positive rate of %v, want %v to %v",
			rate, MinFalsePositiveRate, MaxFalsePositiveRate))
	}
	if n := filled.PageBytes; n < MinPageBytes || n > MaxPageBytes || n&(n-1) != 0 {
		faults = append(faults, errors.Newf("bloom: page of %d bytes, want a power of two from %d to %d",
			n, MinPageBytes, MaxPageBytes))
	}
	return errors.Join(faults...)
}

func (o *Options) withDefaults() Options {
	var filled Options
	if o != nil {
		filled = *o
	}
	if filled.FalsePositiveRate == 0 {
		filled.FalsePositiveRate = DefaultFalsePositiveRate
	}
	if filled.PageBytes == 0 {
		filled.PageBytes = DefaultPageBytes
	}
	return filled
}

// hashes is the number of hash functions for a rate of false positives p: the
// best real number is log2(1/p), of which bloom/v3 takes the ceiling.
func hashes(p float64) int { return int(math.Ceil(math.Log2(1 / p))) }

// capacity is the number of keys after which a page of the given bits is full:
// the largest n with (1-e^(-kn/m))^k <= p.
func capacity(bits, k int, p float64) int {
	n := -float64(bits) / float64(k) * math.Log(1-math.Pow(p, 1/float64(k)))
	return max(1, int(n))
}
