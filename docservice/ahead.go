package docservice

import "docstore/queue"

// Ahead is for boxcarrpc.ServerOptions.Prefetch: gets that arrive together wait for the
// memory of index and segments once, as a batch does, and not each by itself. Without it
// they have the same answers. Statistics of filters count them twice.
func (s *Service) Ahead() map[string]func(requests [][]byte) {
	return map[string]func([][]byte){MethodGet: s.fetchAhead}
}

// fetchAhead has fetched what gets will need. It says nothing of what is wrong with them:
// they will find out.
func (s *Service) fetchAhead(requests [][]byte) {
	scratch := s.scratch.Get().(*batchScratch)
	defer s.keep(scratch)
	var c *Collection // the first that is asked for: most servers have one
	for _, request := range requests {
		asked, id, err := decodeGetRequest(request)
		if err != nil || !validIDBytes(len(id)) {
			continue
		}
		of := s.served.Load().byName[string(asked.collection)]
		if c == nil {
			c = of
		}
		if of != nil && of == c {
			scratch.ids = append(scratch.ids, id)
		}
	}
	if c != nil {
		c.serving.Load().fetchAhead(scratch.ids, &scratch.memory)
	}
}

// fetchAhead has fetched from memory what get will need for each id: of the index alone
// where documents are asked of a cache first.
func (s *store) fetchAhead(ids [][]byte, memory *batchMemory) {
	wanted := memory.wanted[:0]
	_ = s.index.MultiGet(ids, func(i int, value []byte, err error) error {
		if err == nil && s.options.Cache == nil {
			if entry, err := decodeIndexEntry(value); err == nil {
				wanted = append(wanted, queue.Wanted{ID: ids[i], Address: entry.address})
			}
		}
		return nil
	})
	memory.wanted = wanted
	s.queue.FetchAhead(wanted)
}
