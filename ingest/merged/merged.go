// Package merged reads several sources as one. The sources are read concurrently; the records of
// each keep their order.
//
// The cursor has the cursor of each source by name, so sources can be added at any time. A
// cursor of a source that is not among the sources any more is an error, unless its name is
// among Options.Removed. The cursor has at most queue.MaxCursorBytes:
//
//	4   "DSUM"
//	u8  version, 0
//	for each source that has a cursor:
//	    uvarint  bytes of the name     ...  name
//	    uvarint  bytes of the cursor   ...  cursor
//
// For each source one batch is read ahead.
package merged

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"docstore/ingest"
	"docstore/ingest/internal/cursors"
	"docstore/internal/ctxtime"
	"docstore/internal/eof"
	"docstore/queue"
)

// MaxSources is the maximum number of sources.
const MaxSources = 64

// MaxNameBytes is the maximum length of a source's name.
const MaxNameBytes = 64

// Named is one of the sources.
type Named struct {
	Name   string // 1 to MaxNameBytes bytes
	Opener ingest.Opener
	// Rate is the maximum number of records a second, on average of a batch; 0: no limit.
	Rate float64
}

// Opener opens all sources.
type Opener struct {
	sources []Named
	removed []string
}

// New returns an Opener. The cursors of removed sources are dropped.
func New(sources []Named, removed []string) (*Opener, error) {
	if len(sources) == 0 || len(sources) > MaxSources {
		return nil, fmt.Errorf("want 1 to %d sources, not %d", MaxSources, len(sources))
	}
	for i, s := range sources {
		if s.Name == "" || len(s.Name) > MaxNameBytes {
			return nil, fmt.Errorf("the name of a source has 1 to %d bytes, not %d: %q", MaxNameBytes, len(s.Name), s.Name)
		}
		if slices.ContainsFunc(sources[:i], func(t Named) bool { return t.Name == s.Name }) {
			return nil, fmt.Errorf("two sources have the name %q", s.Name)
		}
		if slices.Contains(removed, s.Name) {
			return nil, fmt.Errorf("source %q is among the removed sources", s.Name)
		}
	}
	return &Opener{sources: sources, removed: removed}, nil
}

// Ends implements ingest.Opener: all sources must end.
func (o *Opener) Ends() bool {
	return !slices.ContainsFunc(o.sources, func(s Named) bool { return !s.Opener.Ends() })
}

var cursorKind = cursors.Kind{
	Magic: "DSUM", Name: "several sources",
	Foreign: errors.New("the queue's cursor is not that of several sources; continue the single source that wrote it, or use --resume=false"),
	Damaged: errors.New("the cursor of several sources is damaged; use --resume=false"),
}

// parse returns the cursor of each source.
func (o *Opener) parse(encoded []byte) ([][]byte, error) {
	cursors := make([][]byte, len(o.sources))
	if len(encoded) == 0 {
		return cursors, nil
	}
	_, d, err := cursorKind.Open(encoded)
	if err != nil {
		return nil, err
	}
	for d.More() {
		name := string(d.Take(int(d.Uvarint(MaxNameBytes))))
		own := d.Take(int(d.Uvarint(queue.MaxCursorBytes)))
		i := slices.IndexFunc(o.sources, func(s Named) bool { return s.Name == name })
		switch {
		case len(own) == 0, i >= 0 && cursors[i] != nil:
			d.Fail()
		case i >= 0:
			cursors[i] = own
		case !slices.Contains(o.removed, name):
			return nil, fmt.Errorf("the queue has records of a source %q, which is not among the sources: restore its entry, or list it under \"removed\"", name)
		}
	}
	return cursors, d.End()
}

// encode returns the encoding of cursors.
func (o *Opener) encode(cursors [][]byte) []byte {
	dst := cursorKind.Append(nil)
	for i, c := range cursors {
		dst = o.appendOne(dst, i, c)
	}
	return dst
}

func (o *Opener) appendOne(dst []byte, i int, cursor []byte) []byte {
	if len(cursor) == 0 {
		return dst
	}
	dst = binary.AppendUvarint(dst, uint64(len(o.sources[i].Name)))
	dst = append(dst, o.sources[i].Name...)
	dst = binary.AppendUvarint(dst, uint64(len(cursor)))
	return append(dst, cursor...)
}

// positions are the positions of the sources; nil: the start.
type positions struct {
	names []Named
	of    []ingest.Position
}

// String describes the positions for messages.
func (p *positions) String() string {
	var parts []string
	for i, at := range p.of {
		if at != nil {
			parts = append(parts, fmt.Sprintf("%s: %v", p.names[i].Name, at))
		}
	}
	return strings.Join(parts, ", ")
}

// Position implements ingest.Opener.
func (o *Opener) Position(cursor []byte) (ingest.Position, error) {
	cursors, err := o.parse(cursor)
	if err != nil {
		return nil, err
	}
	p := &positions{o.sources, make([]ingest.Position, len(cursors))}
	for i, c := range cursors {
		if len(c) == 0 {
			continue
		}
		if p.of[i], err = o.sources[i].Opener.Position(c); err != nil {
			return nil, o.explain(i, err)
		}
	}
	return p, nil
}

// explain adds the name of a source to its error.
func (o *Opener) explain(i int, err error) error {
	return fmt.Errorf("source %s: %w", o.sources[i].Name, err)
}

// Earliest implements ingest.Opener.
func (o *Opener) Earliest(cursors [][]byte) ([]byte, error) {
	of := make([][][]byte, len(o.sources))
	for _, c := range cursors {
		parsed, err := o.parse(c)
		if err != nil {
			return nil, err
		}
		for i, own := range parsed {
			of[i] = append(of[i], own)
		}
	}
	earliest := make([][]byte, len(o.sources))
	for i := range earliest {
		// A source behind whose start a cursor is not is read from its start.
		if slices.ContainsFunc(of[i], func(c []byte) bool { return len(c) == 0 }) {
			continue
		}
		var err error
		if earliest[i], err = o.sources[i].Opener.Earliest(of[i]); err != nil {
			return nil, o.explain(i, err)
		}
	}
	return o.encode(earliest), nil
}

// Combine implements ingest.Interleaved: each source has sequences of its records.
func (o *Opener) Combine(a, b []byte) (cursor []byte, within bool, err error) {
	first, err := o.parse(a)
	if err != nil {
		return nil, false, err
	}
	second, err := o.parse(b)
	if err != nil {
		return nil, false, err
	}
	within = true
	for i := range first {
		var one bool
		if first[i], one, err = combine(o.sources[i].Opener, first[i], second[i]); err != nil {
			return nil, false, o.explain(i, err)
		}
		within = within && one
	}
	return o.encode(first), within, nil
}

// combine combines two cursors of one source. In a source that is not interleaved one of two
// cursors is the later one.
func combine(opener ingest.Opener, a, b []byte) (cursor []byte, within bool, err error) {
	if of, ok := opener.(ingest.Interleaved); ok {
		return of.Combine(a, b)
	}
	switch {
	case len(b) == 0:
		return a, true, nil
	case len(a) == 0:
		return b, false, nil
	}
	earliest, err := opener.Earliest([][]byte{a, b})
	if err != nil {
		return nil, false, err
	}
	if bytes.Equal(earliest, b) {
		return a, true, nil
	}
	return b, false, nil
}

// Open implements ingest.Opener.
func (o *Opener) Open(ctx context.Context, cursor []byte) (ingest.Source, error) {
	cursors, err := o.parse(cursor)
	if err != nil {
		return nil, err
	}
	s := &Source{opener: o, cursors: cursors, ready: make(chan result)}
	for i, named := range o.sources {
		own, err := named.Opener.Open(ctx, cursors[i])
		if err != nil {
			return nil, errors.Join(o.explain(i, err), s.Close())
		}
		s.sources = append(s.sources, own)
		s.live = append(s.live, !named.Opener.Ends())
	}
	ctx, s.cancel = context.WithCancel(context.WithoutCancel(ctx))
	for i := range s.sources {
		s.running.Go(func() { s.read(ctx, i) })
	}
	return s, nil
}

// Source reads the sources. Apart from Durable and Lag it is used by one goroutine.
type Source struct {
	opener  *Opener
	sources []ingest.Source
	cursors [][]byte // behind the batches that Next returned
	live    []bool   // a source has not ended and may never end
	ended   int      // number of sources
	unread  error    // of sources that ended
	failed  error
	ready   chan result
	cancel  context.CancelFunc
	running sync.WaitGroup
}

// result is a batch of a source, or the error that ended it.
type result struct {
	source int
	batch  *ingest.Batch
	err    error
}

// read reads one source until it ends or ctx does.
func (s *Source) read(ctx context.Context, i int) {
	rate := s.opener.sources[i].Rate
	for {
		begun := time.Now()
		b, err := s.sources[i].Next(ctx)
		select {
		case s.ready <- result{i, b, err}:
		case <-ctx.Done():
			return
		}
		if err != nil {
			return
		}
		if rate > 0 {
			takes := time.Duration(float64(len(b.Records)) / rate * float64(time.Second))
			ctxtime.Sleep(ctx, takes-time.Since(begun))
		}
	}
}

// Next implements ingest.Source.
func (s *Source) Next(ctx context.Context) (*ingest.Batch, error) {
	for s.failed == nil {
		if s.ended == len(s.sources) {
			s.failed = cmp.Or(s.unread, io.EOF)
			break
		}
		select {
		case <-ctx.Done():
			s.failed = ctx.Err()
		case r := <-s.ready:
			switch {
			case eof.Is(r.err), errors.Is(r.err, ingest.ErrUnread):
				if !eof.Is(r.err) {
					s.unread = errors.Join(s.unread, s.opener.explain(r.source, r.err))
				}
				s.ended++
				s.live[r.source] = false
			case r.err != nil:
				s.failed = s.opener.explain(r.source, r.err)
			default:
				return s.merge(r)
			}
		}
	}
	return nil, s.failed
}

// merge returns the batch of a source with cursors of all sources.
func (s *Source) merge(r result) (*ingest.Batch, error) {
	i, own := r.source, *r.batch
	head := s.opener.encode(s.cursors[:i])
	var tail []byte
	for j := i + 1; j < len(s.cursors); j++ {
		tail = s.opener.appendOne(tail, j, s.cursors[j])
	}
	if c := own.AppendCursor(nil, len(own.Records)-1); len(c) > 0 {
		s.cursors[i] = c
	}
	s.live[i] = !own.Ends
	merged := own
	merged.Source = i
	merged.Ends = !slices.Contains(s.live, true)
	var room []byte
	merged.AppendCursor = func(dst []byte, n int) []byte {
		if room = own.AppendCursor(room[:0], n); len(room) == 0 {
			return dst
		}
		return append(s.opener.appendOne(append(dst, head...), i, room), tail...)
	}
	merged.Included = func(p ingest.Position, n int) bool {
		all, ours := p.(*positions)
		return ours && all.of[i] != nil && own.Included(all.of[i], n)
	}
	merged.Place = func(n int) string { return s.opener.sources[i].Name + ": " + own.Place(n) }
	if size := len(merged.AppendCursor(nil, len(own.Records)-1)); size > queue.MaxCursorBytes {
		s.failed = fmt.Errorf("the cursors of the %d sources have %d bytes, more than the %d that a queue holds; use fewer sources, or shorter names and paths",
			len(s.sources), size, queue.MaxCursorBytes)
		return nil, s.failed
	}
	return &merged, nil
}

// Durable implements ingest.Source.
func (s *Source) Durable(cursor []byte) {
	cursors, err := s.opener.parse(cursor)
	if err != nil {
		return // of other sources
	}
	for i, c := range cursors {
		if len(c) > 0 {
			s.sources[i].Durable(c)
		}
	}
}

// NamedLag is the lag of one of the sources: see ingest.Source.
type NamedLag struct {
	Name string
	N    int64
	Unit string
}

// Lags returns the lag of each source. Like Lag it may be called while Next runs.
func (s *Source) Lags() []NamedLag {
	lags := make([]NamedLag, len(s.sources))
	for i, own := range s.sources {
		n, unit := own.Lag()
		lags[i] = NamedLag{s.opener.sources[i].Name, n, unit}
	}
	return lags
}

// Lag implements ingest.Source. It is unknown if the sources count in different units.
func (s *Source) Lag() (total int64, unit string) {
	for _, own := range s.sources {
		n, u := own.Lag()
		if unit != "" && u != "" && u != unit {
			return 0, ""
		}
		total, unit = total+n, max(unit, u)
	}
	return total, unit
}

// Close implements ingest.Source.
func (s *Source) Close() error {
	if s.cancel != nil {
		s.cancel()
	}
	s.running.Wait()
	s.failed = errors.New("merged: the source is closed")
	var errs []error
	for _, own := range s.sources {
		errs = append(errs, own.Close())
	}
	return errors.Join(errs...)
}
