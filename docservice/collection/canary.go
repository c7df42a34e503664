package collection

import (
	"docstore/docservice"
	"docstore/internal/canary"
	"docstore/queue"
)

// findCanary finds the canary of append that the index has at the start.
func (f *follower) findCanary() {
	it := f.index.NewIter(bounds(&docservice.ScanOptions{Prefix: []byte(canary.AppendPrefix)}))
	defer func() { _ = it.Close() }()
	if it.Next() { // a shard has one
		if entry, err := decodeIndexEntry(it.Value()); err == nil {
			f.servesCanary(it.Key(), entry.address)
		}
	}
}

// servesCanary records that the index has a canary. A document that cannot be read, or is none, is
// ignored: it is no request's, and a damaged one is found by the verifier.
func (f *follower) servesCanary(id []byte, at queue.Address) {
	document, err := f.queue.DocumentFor(nil, id, at)
	if err != nil {
		return
	}
	if d, ok := canary.Decode(document); ok {
		f.health.servesCanary(&d)
	}
}

// servesCanary records that the index has a canary.
func (h *health) servesCanary(d *canary.Document) {
	h.mu.Lock()
	defer h.mu.Unlock()
	tail := &h.mu.tail
	tail.canarySent = d.Sent
	if tail.reachedEnd {
		tail.canaries.add(h.options.Now().Sub(d.Sent) + d.SourceAge())
	}
}
