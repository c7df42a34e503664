package maintain

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"docstore/queue"
	"docstore/queue/internal/segment"
)

// place is the file of a segment or run: an original, a rewrite, or none.
type place struct {
	run     segment.Run // generation 0: an original
	path    string
	open    bool
	missing bool
	// truncated: entries at its end were truncated.
	truncated bool
	damage    []*queue.CorruptionError
	header    *segment.Header // nil: damaged
	digest    *segment.Digest // in the next header; nil: damaged, or not sealed
}

func (p *place) damaged() bool { return p.missing || len(p.damage) > 0 }

func (p *place) report() RepairedFile {
	return RepairedFile{Path: p.path, First: p.run.First, Last: p.run.Last, Missing: p.missing, Damage: p.damage}
}

// survey finds the files of the segments and their damage.
func (r *repairer) survey(ctx context.Context) (err error) {
	if r.listing, err = segment.List(r.options.FS, r.dir); err != nil {
		return err
	}
	for _, run := range r.listing.Rewrites {
		if info, err := r.options.FS.Stat(run.Path(r.dir)); err == nil {
			r.total += info.Size
		}
	}
	for _, n := range r.listing.Numbers {
		if info, err := r.options.FS.Stat(segment.Path(r.dir, n, r.listing.SuffixOf(n))); err == nil {
			r.total += info.Size
		}
	}
	r.places, err = r.placesIn(ctx, 1, max(r.listing.Last(), r.head.Highest), segment.MaxGeneration)
	return err
}

// placesIn returns the files of the segments from first to last, of a generation of at
// most highest.
func (r *repairer) placesIn(ctx context.Context, first, last queue.SegmentID, highest uint32) (places []*place, err error) {
	for n := first; n <= last && n >= first; {
		found, err := r.rewriteAt(ctx, n, last, highest)
		if err == nil && len(found) == 0 {
			found, err = r.originalAt(ctx, n)
		}
		if err != nil {
			return nil, err
		}
		if before := len(places) - 1; before >= 0 && places[before].missing && found[0].missing {
			places[before].run.Last = n // they go into one rewrite
		} else {
			places = append(places, found...)
		}
		n = found[len(found)-1].run.Last + 1
	}
	return places, nil
}

// rewriteAt returns the rewrite that begins with segment n, if there is one. Instead of a
// damaged rewrite it returns the files that the rewrite has replaced, if they are whole.
func (r *repairer) rewriteAt(ctx context.Context, n, last queue.SegmentID, highest uint32) ([]*place, error) {
	for _, run := range r.listing.Covering(n) {
		if run.First != n || run.Last > last || run.Generation > highest {
			continue
		}
		p := &place{run: run, path: run.Path(r.dir)}
		if err := r.inspect(ctx, p); err != nil {
			return nil, err
		}
		replaced, err := r.placesIn(ctx, n, run.Last, run.Generation-1)
		if err != nil {
			return nil, err
		}
		if !p.damaged() {
			for _, other := range replaced {
				if other.damaged() && !other.missing {
					r.spare = append(r.spare, other)
				}
			}
			return []*place{p}, nil
		}
		for _, other := range replaced {
			if other.damaged() {
				return []*place{p}, nil
			}
		}
		r.spare = append(r.spare, p)
		return replaced, nil
	}
	return nil, nil
}

func (r *repairer) originalAt(ctx context.Context, n queue.SegmentID) ([]*place, error) {
	p := &place{run: segment.Run{First: n, Last: n}}
	p.path = segment.Path(r.dir, n, r.listing.SuffixOf(n))
	p.open = r.listing.Open[n] && !r.listing.Sealed[n]
	if !p.open && !r.listing.Sealed[n] {
		p.path, p.missing = segment.Path(r.dir, n, segment.SealedSuffix), true
		return []*place{p}, nil
	}
	return []*place{p}, r.inspect(ctx, p)
}

// inspect verifies a file and reads its chain.
func (r *repairer) inspect(ctx context.Context, p *place) error {
	c := checker{fs: r.options.FS, dir: r.dir}
	c.progress = func(done, _ int64) { r.options.Progress(r.done+done, max(r.total, r.done+done)) }
	var err error
	if p.run.Generation > 0 {
		err = c.rewrite(ctx, p.run)
	} else {
		err = c.segment(ctx, p.run.First)
	}
	if err != nil {
		return err
	}
	r.progress(c.done)
	p.damage = c.report.Damage
	s, err := segment.Open(r.options.FS, p.path, p.run.First)
	if err != nil {
		if segment.IsContent(err) && len(p.damage) == 0 {
			p.damage = []*queue.CorruptionError{{Path: p.path, Segment: p.run.First, Reason: "header is missing or incomplete"}}
		}
		if segment.IsContent(err) {
			err = r.readEnds(p)
		}
		return err
	}
	defer s.Close()
	p.header = &s.Header
	if s.Footer != nil {
		d := s.Digest()
		p.digest, p.truncated = &d, s.Truncates(p.run.Last)
	}
	if p.open && (r.listing.After(p.run.First) || r.head.Sealed >= p.run.First) && len(p.damage) == 0 {
		p.damage = []*queue.CorruptionError{s.Corruption(s.Info.Size, errors.New("segment is not sealed, but it was before, or later segments exist"))}
	}
	return nil
}

// readEnds reads the whole one of header and footer of a file that cannot be opened
// because the other one is damaged.
func (r *repairer) readEnds(p *place) error {
	s, err := r.open(p)
	if err != nil {
		return err
	}
	defer s.Close()
	b := make([]byte, segment.HeaderBytes)
	if s.ReadAt(b, 0) == nil {
		if h, err := segment.ParseHeader(b); err == nil && h.Rewrites == p.headerRun() && h.Holds(p.run.First) {
			p.header = &h
		}
	}
	if s.Footer != nil && p.run.Generation == 0 {
		d := s.Footer.Digest()
		p.digest = &d
	}
	return nil
}

// headerRun returns the run in the header of the place's file.
func (p *place) headerRun() segment.Run {
	if p.run.Generation == 0 {
		return segment.Run{}
	}
	return p.run
}

// open opens a damaged file. Its header is not verified.
func (r *repairer) open(p *place) (*segment.File, error) {
	file, err := r.options.FS.Open(p.path)
	if err != nil {
		return nil, err
	}
	s := &segment.File{Path: p.path, Number: p.run.First, Handle: file}
	raw := make([]byte, segment.HeaderBytes)
	if err = s.Refresh(); err == nil {
		err = s.ReadAt(raw[:min(segment.HeaderBytes, s.Info.Size)], 0)
	}
	if err == nil && s.Footer != nil && s.Footer.Segment != s.Number {
		s.Footer = nil
	}
	s.Header = unverifiedHeader(raw)
	if err == nil && p.run.Generation > 0 {
		s.Header.Rewrites = p.run
		if s.Footer == nil || s.LoadRelocations() != nil {
			s.Footer, s.Relocations = nil, &segment.Relocations{}
		}
	} else if s.Footer != nil && s.Footer.Relocations > 0 {
		s.Footer = nil
	}
	if err != nil {
		file.Close()
		if errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("%s vanished: %w", p.path, err)
		}
		return nil, err
	}
	return s, nil
}
