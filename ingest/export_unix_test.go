//go:build unix

package ingest

import "context"

// ReadAll reads and parses a source as an Appender does, and appends nothing.
func ReadAll(ctx context.Context, from Source) error {
	p := newProducer(from, []Parsing{{}})
	defer p.start(ctx)()
	for b := range p.filled {
		if b.err != nil {
			return b.err
		}
		if <-b.parsed; b.Release != nil {
			b.Release()
		}
	}
	return nil
}
