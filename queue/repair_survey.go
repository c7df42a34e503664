package queue

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
)

// place is the file of a segment or run: an original, a rewrite, or none.
type place struct {
	run     rewriteRun // generation 0: an original
	path    string
	open    bool
	missing bool
	// truncated: entries at its end were truncated.
	truncated bool
	damage    []*CorruptionError
	header    *segmentHeader // nil: damaged
	digest    *digest        // in the next header; nil: damaged, or not sealed
}

func (p *place) damaged() bool { return p.missing || len(p.damage) > 0 }

func (p *place) report() RepairedFile {
	return RepairedFile{Path: p.path, First: p.run.first, Last: p.run.last, Missing: p.missing, Damage: p.damage}
}

// survey finds the files of the segments and their damage.
func (r *repairer) survey(ctx context.Context) (err error) {
	if r.listing, err = list(r.options.FS, r.dir); err != nil {
		return err
	}
	for _, run := range r.listing.rewrites {
		if info, err := r.options.FS.Stat(run.path(r.dir)); err == nil {
			r.total += info.Size
		}
	}
	for _, n := range r.listing.numbers {
		if info, err := r.options.FS.Stat(segmentPath(r.dir, n, r.listing.suffixOf(n))); err == nil {
			r.total += info.Size
		}
	}
	r.places, err = r.placesIn(ctx, 1, max(r.listing.last(), r.head.Highest), maxGeneration)
	return err
}

// placesIn returns the files of the segments from first to last, of a generation of at
// most highest.
func (r *repairer) placesIn(ctx context.Context, first, last SegmentID, highest uint32) (places []*place, err error) {
	for n := first; n <= last && n >= first; {
		found, err := r.rewriteAt(ctx, n, last, highest)
		if err == nil && len(found) == 0 {
			found, err = r.originalAt(ctx, n)
		}
		if err != nil {
			return nil, err
		}
		if before := len(places) - 1; before >= 0 && places[before].missing && found[0].missing {
			places[before].run.last = n // they go into one rewrite
		} else {
			places = append(places, found...)
		}
		n = found[len(found)-1].run.last + 1
	}
	return places, nil
}

// rewriteAt returns the rewrite that begins with segment n, if there is one. Instead of a
// damaged rewrite it returns the files that the rewrite has replaced, if they are whole.
func (r *repairer) rewriteAt(ctx context.Context, n, last SegmentID, highest uint32) ([]*place, error) {
	for _, run := range r.listing.covering(n) {
		if run.first != n || run.last > last || run.generation > highest {
			continue
		}
		p := &place{run: run, path: run.path(r.dir)}
		if err := r.inspect(ctx, p); err != nil {
			return nil, err
		}
		replaced, err := r.placesIn(ctx, n, run.last, run.generation-1)
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

func (r *repairer) originalAt(ctx context.Context, n SegmentID) ([]*place, error) {
	p := &place{run: rewriteRun{first: n, last: n}}
	p.path = segmentPath(r.dir, n, r.listing.suffixOf(n))
	p.open = r.listing.open[n] && !r.listing.sealed[n]
	if !p.open && !r.listing.sealed[n] {
		p.path, p.missing = segmentPath(r.dir, n, sealedSuffix), true
		return []*place{p}, nil
	}
	return []*place{p}, r.inspect(ctx, p)
}

// inspect verifies a file and reads its chain.
func (r *repairer) inspect(ctx context.Context, p *place) error {
	c := checker{fs: r.options.FS, dir: r.dir}
	c.progress = func(done, _ int64) { r.options.Progress(r.done+done, max(r.total, r.done+done)) }
	var err error
	if p.run.generation > 0 {
		err = c.rewrite(ctx, p.run)
	} else {
		err = c.segment(ctx, p.run.first)
	}
	if err != nil {
		return err
	}
	r.progress(c.done)
	p.damage = c.report.Damage
	s, err := openSegmentFile(r.options.FS, p.path, p.run.first)
	if err != nil {
		if isContent(err) && len(p.damage) == 0 {
			p.damage = []*CorruptionError{{Path: p.path, Segment: p.run.first, Reason: "header is missing or incomplete"}}
		}
		if isContent(err) {
			err = r.readEnds(p)
		}
		return err
	}
	defer s.close()
	p.header = &s.header
	if s.footer != nil {
		d := s.digest()
		p.digest, p.truncated = &d, s.truncates(p.run.last)
	}
	if p.open && (r.listing.after(p.run.first) || r.head.Sealed >= p.run.first) && len(p.damage) == 0 {
		p.damage = []*CorruptionError{s.corruption(s.info.Size, errors.New("segment is not sealed, but it was before, or later segments exist"))}
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
	defer s.close()
	b := make([]byte, headerBytes)
	if s.readAt(b, 0) == nil {
		if h, err := parseHeader(b); err == nil && h.rewrites == p.headerRun() && h.holds(p.run.first) {
			p.header = &h
		}
	}
	if s.footer != nil && p.run.generation == 0 {
		d := s.footer.digest()
		p.digest = &d
	}
	return nil
}

// headerRun returns the run in the header of the place's file.
func (p *place) headerRun() rewriteRun {
	if p.run.generation == 0 {
		return rewriteRun{}
	}
	return p.run
}

// open opens a damaged file. Its header is not verified.
func (r *repairer) open(p *place) (*segmentFile, error) {
	file, err := r.options.FS.Open(p.path)
	if err != nil {
		return nil, err
	}
	s := &segmentFile{path: p.path, number: p.run.first, file: file}
	raw := make([]byte, headerBytes)
	if err = s.refresh(); err == nil {
		err = s.readAt(raw[:min(headerBytes, s.info.Size)], 0)
	}
	if err == nil && s.footer != nil && s.footer.segment != s.number {
		s.footer = nil
	}
	s.header = unverifiedHeader(raw)
	if err == nil && p.run.generation > 0 {
		s.header.rewrites = p.run
		if s.footer == nil || s.loadRelocations() != nil {
			s.footer, s.relocations = nil, &relocations{}
		}
	} else if s.footer != nil && s.footer.relocations > 0 {
		s.footer = nil
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
