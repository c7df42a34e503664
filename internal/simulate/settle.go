package simulate

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"docstore/docservice"
	"docstore/internal/canary"
	"docstore/queue"
)

// settle waits until every server has everything, and compares each id.
func (w *world) settle(clients []*client) {
	markers := w.markers()
	for _, id := range markers {
		w.put(id, false, time.Time{}, 0)
	}
	deadline := time.Now().Add(settleTime)
	for _, c := range clients {
		for !c.upToDate(markers) {
			if time.Now().After(deadline) {
				w.account.wrongf("liveness", "%s: %s", c.name, c.state(markers))
				return
			}
			time.Sleep(settlePoll)
		}
	}
	w.log.add("world", "settled after %v", settleTime-time.Until(deadline))
	w.account.caughtUp(w.names()...)
	for _, c := range clients {
		for n := range w.config.IDs {
			c.settled("doc-"+itoa(n), deadline)
		}
		for after := ""; w.etcd == nil || c.single == nil; {
			q := w.account.ask(c.servers...)
			var ids []string
			next, err := c.client.Scan(context.Background(), docservice.ScanOptions{After: []byte(after), IDsOnly: true}, func(id string, _ []byte, _ error) error {
				ids = append(ids, id)
				return nil
			})
			if err != nil && time.Now().Before(deadline) { // see settled
				time.Sleep(settlePoll)
				continue
			}
			if err != nil {
				w.account.wrongf("liveness", "%s: a list after %q: %v", c.name, after, err)
				break
			}
			w.account.listed(q, after, string(next), ids)
			if after = string(next); next == nil {
				break
			}
		}
	}
}

// upToDate reports whether the servers of the client are ready and have the newest entry.
func (c *client) upToDate(markers []string) bool {
	for _, name := range c.servers {
		if !c.w.host(name).ready() {
			return false
		}
	}
	return c.missing(markers) == nil
}

// missing returns why the client does not get a marker, nil if it gets all. A server of a column
// has only some shards.
func (c *client) missing(markers []string) error {
	ctx, cancel := context.WithTimeout(context.Background(), callTime)
	defer cancel()
	for _, id := range markers {
		if _, err := c.client.Get(ctx, nil, id); err != nil && (c.single == nil || !errors.Is(err, docservice.ErrMoved)) {
			return fmt.Errorf("%s: %w", id, err)
		}
	}
	return nil
}

// markers returns an id of each shard, which is written after all others.
func (w *world) markers() (ids []string) {
	for s := range w.layout.Shards {
		for n := 0; ; n++ {
			if id := fmt.Sprint("marker-", n); w.layout.ShardString(id) == s {
				ids = append(ids, id)
				break
			}
		}
	}
	return ids
}

// state describes what the servers of the client lack.
func (c *client) state(markers []string) string {
	var states []string
	for _, name := range c.servers {
		h := c.w.host(name)
		h.mu.Lock()
		p := h.mu.process
		h.mu.Unlock()
		if p == nil || p.server == nil {
			states = append(states, name+" does not run")
			continue
		}
		states = append(states, fmt.Sprintf("%s %+v", name, p.server.Readiness()))
	}
	return fmt.Sprintf("%s; %v", strings.Join(states, "; "), c.missing(markers))
}

// settled compares the answer for an id with the newest entry.
// A damaged document may be unavailable when it is first read, and a connection may be silent for as
// long as the network was.
func (c *client) settled(id string, deadline time.Time) {
	ctx, cancel := context.WithTimeout(context.Background(), callTime)
	defer cancel()
	q := c.w.account.ask(c.servers...)
	document, err := c.client.Get(ctx, nil, id)
	switch {
	case errors.Is(err, docservice.ErrMoved) && c.single != nil: // of another column
	case err == nil:
		c.w.account.found(q, id, document)
	case errors.Is(err, docservice.ErrNotFound):
		c.w.account.missing(q, id)
	case time.Now().Before(deadline):
		time.Sleep(settlePoll)
		c.settled(id, deadline)
	default:
		c.w.account.wrongf("liveness", "%s: %s: %v", c.name, id, err)
	}
}

func (w *world) names() (names []string) {
	for _, h := range w.servers {
		names = append(names, h.name)
	}
	return names
}

// checkQueue compares the queue with the written records: each record once, in order.
func (w *world) checkQueue() {
	for shard := range w.layout.Shards {
		if err := w.checkShard(shard, w.layout.Dir(queueDir, shard)); err != nil {
			w.account.wrongf("queue", "%v", err)
		}
	}
}

func (w *world) checkShard(shard int, dir string) error {
	w.account.mu.Lock()
	var want []entry
	for _, e := range w.account.mu.entries[1:] {
		if e.shard == shard && e.withdrawn == 0 {
			want = append(want, e)
		}
	}
	w.account.mu.Unlock()
	compacted := w.hasCompacted()
	at := 0
	err := w.scanQueue(dir, func(e queue.Entry, version int) error {
		found := slices.IndexFunc(want[at:], func(f entry) bool {
			deleted := f.deleted || compacted && !f.expires.IsZero() // an expired document became a delete
			return f.id == string(e.ID) && (e.Deleted && deleted || !e.Deleted && f.version == version)
		})
		if found < 0 || found > 0 && !compacted {
			return fmt.Errorf("%s has entry %s version %d (deleted: %v) at %v, where entry %d of the log belongs", dir, e.ID, version, e.Deleted, e.Address, at)
		}
		at += found + 1
		return nil
	})
	if err == nil && at < len(want) && !compacted {
		err = fmt.Errorf("%s lacks %d of %d entries at its end", dir, len(want)-at, len(want))
	}
	return err
}

// scanQueue calls f for each entry of a queue of the ingest host that is no canary, with the version of
// its document.
func (w *world) scanQueue(dir string, f func(e queue.Entry, version int) error) error {
	r, err := queue.OpenReader(dir, &queue.ReaderOptions{FS: w.ingest().disk.Files()})
	if err != nil {
		return err
	}
	defer func() { _ = r.Close() }() // it was only read
	return r.Scan(context.Background(), queue.Position{}, func(e queue.Entry) error {
		if canary.Is(e.ID) {
			return nil
		}
		version := -1
		if !e.Deleted {
			document, err := r.DocumentFor(nil, e.ID, e.Address)
			if err != nil {
				return err
			}
			if version, err = parseDocument(string(e.ID), document); err != nil {
				return err
			}
		}
		return f(e, version)
	})
}

// sharedTemporary is the age at which the temporary file of vfs.WriteFileShared is removed by the
// next write.
const sharedTemporary = time.Hour

// Ends of the names of an index, and of one that was too damaged to be opened.
const (
	indexExtension = ".v1"
	damagedIndex   = ".damaged"
)

// isShared reports whether a file is one that several programs may write.
func isShared(name string) bool {
	return strings.HasPrefix(path.Base(name), "servers-") || strings.HasPrefix(path.Base(name), "placement.json")
}

// checkFiles reports temporary files that were left.
func (w *world) checkFiles() {
	for _, h := range w.servers {
		for _, pattern := range []string{"*.part", "*.tmp", "*.new"} {
			left, err := h.disk.Find(dataDir, pattern)
			w.must(err)
			for _, file := range left {
				if strings.HasSuffix(path.Dir(file.Name), damagedIndex) {
					continue // it is kept as it is, for analysis
				}
				if info, err := h.disk.Files().Stat(file.Name); err == nil && isShared(file.Name) && time.Since(info.ModTime) < sharedTemporary {
					continue
				}
				w.account.wrongf("files", "%s has left %s", h.name, path.Base(file.Name))
			}
		}
	}
}
