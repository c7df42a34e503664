package queue

// part is a sealed file that counts: an original or a rewrite, which of an
// original is of generation 0.
type part struct {
	rewriteRun
	encoding
	entries      int64
	bytes        int64 // of the file
	stored, live int64 // bytes of documents
}

// encoding is what the documents of a file are stored with. They can be taken
// over as they are only where it is the same.
type encoding struct {
	codec      string
	dictionary DictionaryHash
}

func (p *part) dead(maxDead float64) bool {
	return float64(p.stored-p.live) > maxDead*float64(p.stored)
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

// generation is above that of all that the run replaces.
func (r *plannedRun) generation() uint32 {
	var highest uint32
	for _, p := range r.parts {
		highest = max(highest, p.generation)
	}
	return highest + 1
}

// planRewrites puts the parts, which are in order, into runs: each part of which
// more than maxDead is dead, with its neighbours if these are to be rewritten,
// too, and have the same encoding, as long as the live documents have no more
// than maxBytes.
func planRewrites(parts []part, maxDead float64, maxBytes int64) []plannedRun {
	var runs []plannedRun
	for _, p := range parts {
		if !p.dead(maxDead) || p.generation >= maxGeneration {
			continue
		}
		if n := len(runs) - 1; n >= 0 && runs[n].last()+1 == p.first &&
			runs[n].parts[0].encoding == p.encoding && runs[n].live()+p.live <= maxBytes {
			runs[n].parts = append(runs[n].parts, p)
			continue
		}
		runs = append(runs, plannedRun{parts: []part{p}})
	}
	return runs
}
