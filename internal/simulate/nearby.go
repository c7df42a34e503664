package simulate

import (
	"context"
	"errors"
	"time"

	"docstore/docservice"
	"docstore/docservice/collection"
	"docstore/docservice/server"
	"docstore/internal/ctxtime"
	"docstore/queue/shard"
)

const (
	// nearTime is the time for which nearby asks a server that starts, catches up or replaces an index.
	nearTime = 3 * time.Second
	// nearIDs is the number of the newest entries that it asks for.
	nearIDs = 4
	// nearPause is the shortest pause between its requests.
	nearPause = time.Millisecond
)

// nearby asks a server without a network in between: at the moment at which it starts, while it
// catches up, and while it replaces an index. Clients that connect first would miss states that last
// milliseconds.
type nearby struct {
	asker
	process *serverProcess
	server  *server.Server
}

// askNearby asks the process until nearTime is over. replaces: it replaces an index meanwhile.
func (h *serverHost) askNearby(replaces bool) {
	p := h.current()
	if p == nil || h.started() == nil {
		return
	}
	n := &nearby{asker{w: h.w, name: "a process on " + h.name, servers: []string{h.name}, single: h}, p, p.server}
	if !replaces && h.w.etcd == nil {
		h.w.running.Go(n.listWhenReady)
	}
	h.w.running.Go(func() {
		pause := nearPause
		for began := time.Now(); n.runs() && time.Since(began) < nearTime; {
			n.askOnce()
			if !replaces {
				pause = nearPause + time.Since(began)/16
			}
			if !ctxtime.Sleep(h.w.busy, pause) {
				return
			}
		}
	})
}

// askOnce asks for the newest ids, which tell how far the server has read, and for others.
func (n *nearby) askOnce() {
	d := n.w.chance.Next("nearby " + n.single.name)
	for _, id := range append(n.w.account.newestIDs(nearIDs), n.randomID(&d), n.randomID(&d)) {
		n.get(id)
	}
}

// listWhenReady lists ids at each moment at which the collection becomes ready: from then on, the
// entries of documents that compaction has dropped are removed.
func (n *nearby) listWhenReady() {
	ctx, cancel := context.WithTimeout(n.w.busy, nearTime)
	defer cancel()
	for n.runs() {
		c := n.server.Collection(collectionName)
		if c != nil && !c.Ready() && c.WaitReady(ctx) == nil {
			n.askOnce()
			for after := "doc-0"; after != ""; {
				after = n.list(c, after)
			}
		}
		if !ctxtime.Sleep(ctx, nearPause) {
			return
		}
	}
}

// runs reports whether the process runs: answers of one that was killed do not count.
func (n *nearby) runs() bool { return n.single.current() == n.process && n.single.started() != nil }

// get asks for a document.
func (n *nearby) get(id string) {
	name := collectionName
	if n.w.etcd != nil {
		name = shard.Name(collectionName, n.w.layout.ShardString(id))
	}
	c := n.server.Collection(name)
	if c == nil {
		return
	}
	before, incomplete, q := n.serves(id), n.incomplete(), n.question()
	truncated, forked := knowsTruncation(c), knowsFork(c)
	document, err := c.Get(nil, []byte(id))
	if truncated && err == nil && knowsTruncation(c) {
		n.w.account.servedWithdrawn(n.single.name, id, document)
	}
	if forked && errors.Is(err, docservice.ErrNotFound) && knowsFork(c) && n.runs() {
		n.w.account.wrongf("forked", "%s did not find %s in a queue that it knows to have another history", n.single.name, id)
	}
	if n.runs() {
		n.judge(q, before, incomplete, id, document, err)
	}
}

// list asks for a page of ids, and returns the last one; empty: it is the last page.
func (n *nearby) list(c *collection.Collection, after string) (through string) {
	n.serves(after)
	q := n.w.account.ask(n.servers...)
	var ids []string
	err := c.Scan(n.w.busy, docservice.ScanOptions{After: []byte(after), Limit: pageIDs, IDsOnly: true}, func(id []byte, _ collection.Answer) error {
		ids = append(ids, string(id))
		return nil
	})
	if err != nil || !n.runs() {
		return ""
	}
	if len(ids) == pageIDs {
		through = ids[pageIDs-1]
	}
	n.w.account.listed(q, after, through, ids)
	return through
}
