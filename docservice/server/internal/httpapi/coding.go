package httpapi

import (
	"bytes"
	"io"
	"runtime"
	"strconv"
	"strings"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// A Coding is a content coding.
type Coding string

// The codings, in the order of preference of the server.
const (
	Zstd     Coding = "zstd"
	Gzip     Coding = "gzip"
	Identity Coding = ""
)

const (
	// MaxZstdWindowBytes is the maximum window of a zstd response: RFC 9659.
	MaxZstdWindowBytes = 8 << 20
	// CompressorBytes is the approximate memory of a compressor.
	CompressorBytes = 1 << 20
	// MinCompressBytes is the size of the smallest document that is compressed for a response:
	// compressing a smaller one takes longer than all other work for it, and saves at most two
	// packets.
	MinCompressBytes = 4 << 10

	zstdWindowBytes = 256 << 10
	gzipLevel       = gzip.BestSpeed
)

// Negotiate returns the coding that the values of Accept-Encoding weigh highest, and of
// equal ones that of the order Zstd, Gzip, Identity. Without any acceptable coding it
// returns Identity.
func Negotiate(values []string) Coding {
	const unnamed = -1
	inZstd, inGzip, identity, other := float64(unnamed), float64(unnamed), 0.0, 0.0
	for _, value := range values {
		for item := range strings.SplitSeq(value, ",") {
			name, parameters, _ := strings.Cut(item, ";")
			switch strings.ToLower(strings.TrimSpace(name)) {
			case string(Zstd):
				inZstd = weight(parameters)
			case string(Gzip), "x-gzip":
				inGzip = weight(parameters)
			case "identity":
				identity = weight(parameters)
			case "*":
				other = weight(parameters)
			}
		}
	}
	if inZstd == unnamed {
		inZstd = other
	}
	if inGzip == unnamed {
		inGzip = other
	}
	switch most := max(inZstd, inGzip); {
	case most <= 0, identity > most:
		return Identity
	case inZstd == most:
		return Zstd
	}
	return Gzip
}

// weight returns the q of the parameters of a coding: 1 without one, 0 if it is malformed.
func weight(parameters string) float64 {
	for parameter := range strings.SplitSeq(parameters, ";") {
		name, value, ok := strings.Cut(strings.TrimSpace(parameter), "=")
		if !ok || !strings.EqualFold(name, "q") {
			continue
		}
		q, err := strconv.ParseFloat(value, 64)
		if err != nil || !(q >= 0 && q <= 1) {
			return 0
		}
		return q
	}
	return 1
}

var zstdAll = sync.OnceValue(func() *zstd.Encoder { return newZstd(runtime.GOMAXPROCS(0)) })

// newZstd returns an encoder for that many goroutines.
func newZstd(concurrency int) *zstd.Encoder {
	encoder, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(concurrency),
		zstd.WithLowerEncoderMem(true), zstd.WithWindowSize(zstdWindowBytes), zstd.WithEncoderCRC(false))
	if err != nil {
		panic(err) // the options are constants
	}
	return encoder
}

// compressor is a *zstd.Encoder or a *gzip.Writer.
type compressor interface {
	io.WriteCloser
	Reset(to io.Writer)
}

var compressors = map[Coding]*sync.Pool{
	Zstd: {New: func() any { return newZstd(1) }},
	Gzip: {New: func() any {
		w, err := gzip.NewWriterLevel(io.Discard, gzipLevel)
		if err != nil {
			panic(err) // the level is a constant
		}
		return w
	}},
}

// Compress returns the body in the coding, or the body itself and Identity if it is short
// or does not become smaller.
func (c Coding) Compress(body []byte) ([]byte, Coding) {
	if len(body) < MinCompressBytes || c == Identity {
		return body, Identity
	}
	var coded []byte
	if c == Zstd {
		coded = zstdAll().EncodeAll(body, make([]byte, 0, len(body)/2))
	} else {
		var buffer bytes.Buffer
		buffer.Grow(len(body) / 2)
		w := c.NewWriter(&buffer)
		_, _ = w.Write(body) // to memory
		_ = w.Close()
		coded = buffer.Bytes()
	}
	if len(coded) >= len(body) {
		return body, Identity
	}
	return coded, c
}

// NewWriter returns a writer that compresses to another one. Close writes the end of the
// coded form, unless a write has failed, and does not close the other writer. Every writer
// must be closed.
func (c Coding) NewWriter(to io.Writer) io.WriteCloser {
	pool := compressors[c]
	if pool == nil {
		return identityWriter{to}
	}
	w := pool.Get().(compressor)
	w.Reset(to)
	return &pooledWriter{compressor: w, pool: pool}
}

type identityWriter struct{ io.Writer }

func (identityWriter) Close() error { return nil }

// pooledWriter returns its compressor to a pool.
type pooledWriter struct {
	compressor
	pool *sync.Pool
}

func (p *pooledWriter) Close() error {
	w := p.compressor
	err := w.Close()
	w.Reset(io.Discard) // drop the reference to the response
	p.pool.Put(w)
	p.compressor = nil
	return err
}
