package maintain

import (
	"slices"

	"docstore/queue"
	"docstore/queue/codec"
	"docstore/queue/internal/segment"
)

// part is a sealed file in use: an original, of generation 0, or a rewrite.
type part struct {
	segment.Run
	encoding
	sampled      segment.Run // the segments that its dictionary was trained from
	entries      int64
	bytes        int64 // of the file
	stored, live int64 // bytes of documents and deletes
	erase        bool  // it has documents to be erased
	newest       bool  // it has the newest entries, or is after them
	end          bool  // a retained state ends with it
}

// encoding is the codec and dictionary of a file. Documents can be copied unchanged only
// between files of the same encoding.
type encoding struct {
	codec      string
	dictionary codec.DictionaryHash
	// tainted: the dictionary must be replaced, so each document is encoded again.
	tainted bool
}

// account adds the usage of a segment of the part.
func (p *part) account(u *segmentUsage) {
	p.stored += u.StoredBytes + u.deleteBytes
	p.live += u.LiveBytes + u.needed
	p.erase = p.erase || u.erasable
}

// due reports whether the part has to be rewritten, independent of its neighbors.
func (p *part) due(maxDead float64) bool {
	return p.erase || !p.newest && float64(p.stored-p.live) > maxDead*float64(p.stored)
}

// markTainted finds the parts whose dictionary may contain pieces of a document that is
// to be erased or that an earlier rewrite has dropped. That is the case if the segments
// it was trained from are unknown, or if one of them has to be rewritten or has been
// rewritten since. Otherwise every erasure would rewrite every file with a dictionary: of 21
// segments with two documents to erase 1 is rewritten in 0.8 s, and not 21 in 39 s.
func markTainted(parts []part) {
	for again := true; again; {
		again = false
		known := map[segment.Run]bool{}
		for i := range parts {
			p := &parts[i]
			if p.dictionary == (codec.DictionaryHash{}) {
				continue
			}
			if _, ok := known[p.sampled]; !ok {
				known[p.sampled] = taints(parts, p.sampled)
			}
			if known[p.sampled] {
				p.erase, p.tainted, p.dictionary = true, true, codec.DictionaryHash{}
				again = true // dictionaries trained from this part are tainted, too
			}
		}
	}
}

// taints reports whether a dictionary trained from the sampled segments is tainted.
func taints(parts []part, sampled segment.Run) bool {
	return sampled.First == 0 || slices.ContainsFunc(parts, func(p part) bool {
		return p.Overlaps(sampled) && (p.erase || p.Generation > sampled.Generation)
	})
}

// plannedRun is a sequence of files to be rewritten into one.
type plannedRun struct{ parts []part }

func (r *plannedRun) first() queue.SegmentID { return r.parts[0].First }
func (r *plannedRun) last() queue.SegmentID  { return r.parts[len(r.parts)-1].Last }

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

// bytes is the size of the files.
func (r *plannedRun) bytes() (sum int64) {
	for _, p := range r.parts {
		sum += p.bytes
	}
	return sum
}

// HighestGeneration is that of the files of the run.
func (r *plannedRun) highestGeneration() (highest uint32) {
	for _, p := range r.parts {
		highest = max(highest, p.Generation)
	}
	return highest
}

// takes reports whether the run may be extended by a part.
func (r *plannedRun) takes(p *part, maxBytes int64) bool {
	return r.last()+1 == p.First && !r.parts[len(r.parts)-1].end && r.parts[0].encoding == p.encoding && r.live()+p.live <= maxBytes
}

// mergeAtLeast adjacent rewrites are merged if their total is at most maxBytes. So a
// document is written again only when its file grows fourfold.
const mergeAtLeast = 4

// planRewrites groups the parts, which are in order, into runs. A part is rewritten if
// more than maxDead of it is dead or if something in it must be erased. Adjacent parts of
// the same encoding that are rewritten form one run of at most maxBytes live bytes.
// Adjacent small rewrites of the same encoding are merged.
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
		if !p.due(maxDead) {
			if len(small.parts) > 0 && !small.takes(&p, maxBytes) {
				merge()
			}
			if p.Generation > 0 && !p.newest && p.live <= maxBytes/mergeAtLeast {
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
