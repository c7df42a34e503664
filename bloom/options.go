package bloom

import (
	"math"

	"github.com/cockroachdb/errors"
)

// Defaults and limits of Options.
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

// Options configure how a filter is built. A nil *Options has all defaults. Filters
// with different options can be used together.
type Options struct {
	// FalsePositiveRate is the fraction of absent keys for which the filter answers
	// "maybe". The default is DefaultFalsePositiveRate.
	FalsePositiveRate float64
	// PageBytes is the size of a page, a power of two. The default is DefaultPageBytes.
	PageBytes int
}

// Validate reports all invalid options.
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

// hashes returns the number of hash functions for a false positive rate p. The optimum
// is log2(1/p); like bloom/v3 this takes the ceiling.
func hashes(p float64) int { return int(math.Ceil(math.Log2(1 / p))) }

// capacity returns the number of keys that fill a page of the given bits: the largest n
// with (1-e^(-kn/m))^k <= p.
func capacity(bits, k int, p float64) int {
	n := -float64(bits) / float64(k) * math.Log(1-math.Pow(p, 1/float64(k)))
	return max(1, int(n))
}
