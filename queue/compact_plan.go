package queue

import "slices"

// part is a sealed file that counts: an original or a rewrite, which of an
// original is of generation 0.
type part struct {
	rewriteRun
	encoding
	sampled      rewriteRun // what its dictionary was made of
	entries      int64
	bytes        int64 // of the file
	stored, live int64 // bytes of documents and deletes
	erase        bool  // it holds something that must go
	newest       bool  // it has the newest entries, or none and is behind them
}

// encoding is what the documents of a file are stored with. They can be taken
// over as they are only where it is the same.
type encoding struct {
	codec      string
	dictionary DictionaryHash
	// tainted: the dictionary must go, and so each document is encoded anew.
	tainted bool
}

// account adds what a segment of the part holds.
func (p *part) account(u *segmentUsage) {
	p.stored += u.StoredBytes + u.deleteBytes
	p.live += u.LiveBytes + u.needed
	p.erase = p.erase || u.erasable
}

// due tells whether the part is to be rewritten for its own sake.
func (p *part) due(maxDead float64) bool {
	return p.erase || !p.newest && float64(p.stored-p.live) > maxDead*float64(p.stored)
}

// markTainted finds the parts whose dictionary may hold pieces of a document that
// is to be erased or was left out by a rewrite before: it was made of segments of
// which one has to be rewritten, or was rewritten since, or nobody knows what of.
func markTainted(parts []part) {
	for again := true; again; {
		again = false
		known := map[rewriteRun]bool{}
		for i := range parts {
			p := &parts[i]
			if p.dictionary == (DictionaryHash{}) {
				continue
			}
			if _, ok := known[p.sampled]; !ok {
				known[p.sampled] = taints(parts, p.sampled)
			}
			if known[p.sampled] {
				p.erase, p.tainted, p.dictionary = true, true, DictionaryHash{}
				again = true // what was made of this one is tainted, too
			}
		}
	}
}

// taints tells whether a dictionary must go that was made of some segments.
func taints(parts []part, sampled rewriteRun) bool {
	return sampled.first == 0 || slices.ContainsFunc(parts, func(p part) bool {
		return p.overlaps(sampled) && (p.erase || p.generation > sampled.generation)
	})
}

// plannedRun is a row of files to be rewritten into one.
type plannedRun struct{ parts []part }

func (r *plannedRun) first() SegmentID { return r.parts[0].first }
func (r *plannedRun) last() SegmentID  { return r.parts[len(r.parts)-1].last }

func (r *plannedRun) entries() (sum int64) {
	for _, p := range r.parts {
		sum += p.entries
	}
	return sum
}

func (r *plannedRun) live() (sum int64) {
	for _, p := range r.parts {
		sum += p.live
	}
	return sum
}

// bytes are those of the files.
func (r *plannedRun) bytes() (sum int64) {
	for _, p := range r.parts {
		sum += p.bytes
	}
	return sum
}

// generation is above that of all that the run replaces.
func (r *plannedRun) generation() uint32 {
	var highest uint32
	for _, p := range r.parts {
		highest = max(highest, p.generation)
	}
	return highest + 1
}

// takes tells whether the run may go on with a part.
func (r *plannedRun) takes(p *part, maxBytes int64) bool {
	return r.last()+1 == p.first && r.parts[0].encoding == p.encoding && r.live()+p.live <= maxBytes
}

// mergeAtLeast rewrites that lie side by side are merged if together they are no
// larger than maxBytes. A document is so written once more each time that its
// file becomes four times as large.
const mergeAtLeast = 4

// planRewrites puts the parts, which are in order, into runs: each part of which
// more than maxDead is dead or that must go, with its neighbours if these are to
// be rewritten, too, and have the same encoding, as long as what is live has no
// more than maxBytes; and small rewrites of the same encoding.
func planRewrites(parts []part, maxDead float64, maxBytes int64) []plannedRun {
	var runs []plannedRun
	var small plannedRun // rewrites that may be merged
	merge := func() {
		if len(small.parts) >= mergeAtLeast {
			runs = append(runs, small)
		}
		small = plannedRun{}
	}
	for _, p := range parts {
		if p.generation >= maxGeneration {
			continue
		}
		if !p.due(maxDead) {
			if len(small.parts) > 0 && !small.takes(&p, maxBytes) {
				merge()
			}
			if p.generation > 0 && !p.newest && p.live <= maxBytes/mergeAtLeast {
				small.parts = append(small.parts, p)
			}
			continue
		}
		merge()
		if n := len(runs) - 1; n >= 0 && runs[n].takes(&p, maxBytes) {
			runs[n].parts = append(runs[n].parts, p)
			continue
		}
		runs = append(runs, plannedRun{parts: []part{p}})
	}
	merge()
	return runs
}
