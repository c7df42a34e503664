package collection

import (
	"docstore/docservice"
	"docstore/docservice/internal/wire"
)

// Prefetch returns the value for boxcarrpc.ServerOptions.Prefetch: it prefetches the index and
// segment data of gets that arrive together, so that their cache misses overlap as in a
// batch. The answers are the same without it. Filter statistics count these gets twice.
func (s *Service) Prefetch() map[string]func(requests [][]byte) {
	return map[string]func([][]byte){docservice.MethodGet: s.prefetch}
}

// prefetch prefetches the data that the requests will read. It ignores invalid requests:
// the handlers report them.
func (s *Service) prefetch(requests [][]byte) {
	scratch := s.scratch.Get().(*batchScratch)
	defer s.keep(scratch)
	served := s.served.Load()
	var c *Collection // that of the first request: most servers have one
	for _, request := range requests {
		asked, id, err := wire.DecodeGetRequest(request)
		if err != nil || !wire.ValidIDBytes(len(id)) {
			continue
		}
		of := served.byName[string(asked.Collection)]
		if of == nil {
			continue
		}
		one := of.held[of.layout.Shard(id)]
		if c == nil {
			c = one
		}
		if one != nil && one == c {
			scratch.ids = append(scratch.ids, id)
		}
	}
	if c != nil {
		c.serving.Load().reader.prefetch(scratch.ids, &scratch.memory)
	}
}

// prefetch prefetches the data that get will read for each id: only the index if a
// memcached cache is asked for documents first.
func (r *reader) prefetch(ids [][]byte, memory *batchMemory) {
	if r.indexReads.IsCold() {
		r.index.ReadAhead(ids)
		return // the lookups would wait for the disk
	}
	wanted := memory.wanted[:0]
	_ = r.index.MultiGet(ids, func(i int, value []byte, err error) error {
		if err == nil && r.options.Cache == nil {
			if entry, err := decodeIndexEntry(value); err == nil {
				wanted = append(wanted, entry.wanted(ids[i]))
			}
		}
		return nil
	})
	memory.wanted = wanted
	if r.segmentReads.IsCold() {
		r.queue.ReadAhead(wanted)
	} else {
		r.queue.FetchAhead(wanted)
	}
}
