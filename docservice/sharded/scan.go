package sharded

import (
	"bytes"
	"cmp"
	"container/heap"
	"context"
	"fmt"
	"slices"
	"sync"

	"docstore/boxcarrpc"
	"docstore/docservice"
	"docstore/docservice/docservicepb"
	"docstore/queue/shard"
)

const (
	// scanConcurrency is the number of shards that are read at the same time.
	scanConcurrency = 8
	// minShardPage is the minimum number of ids requested from a shard.
	minShardPage = 16
)

// Scan fetches a page: it calls fn for up to o.Limit ids in byte order, over all shards: see
// docservice.Client.Scan. It fails if a shard cannot be read, because ids would be missing.
// The next page can be requested after a change of the placement.
//
// A page reads all shards: scans are for operators and exports, not for serving.
func (c *Client) Scan(ctx context.Context, o docservice.ScanOptions, fn func(id string, document []byte, err error) error) (next []byte, err error) {
	r := c.current()
	if r == nil {
		return nil, ErrNoPlacement
	}
	if o.Limit < 0 || o.Limit > docservice.MaxScanIDs {
		return nil, fmt.Errorf("sharded: a page of %d ids: want 1 to %d", o.Limit, docservice.MaxScanIDs)
	}
	if o.Limit == 0 {
		o.Limit = docservice.DefaultScanIDs
	}
	shards := r.placement.Layout.Shards
	page := o
	page.Limit = min(o.Limit, 2*o.Limit/shards+minShardPage)
	m := make(merge, shards)
	for i := range m {
		m[i] = &shardPages{client: c, shard: i, options: page}
		m[i].options.After = slices.Clone(o.After)
	}
	if err := m.readAll(ctx); err != nil {
		return nil, err
	}
	m = slices.DeleteFunc(m, (*shardPages).done)
	heap.Init(&m)
	var last []byte
	for n := 0; len(m) > 0; n++ {
		if n == o.Limit {
			return last, nil
		}
		p := m[0]
		e := p.entries[0]
		last = append(last[:0], e.id...)
		if err := fn(e.id, e.document, e.err); err != nil {
			return nil, err
		}
		p.entries = p.entries[1:]
		if len(p.entries) == 0 && !p.complete {
			if err := p.read(ctx); err != nil {
				return nil, err
			}
		}
		if p.done() {
			heap.Pop(&m)
		} else {
			heap.Fix(&m, 0)
		}
	}
	return nil, nil
}

// scanEntry is an entry of a page.
type scanEntry struct {
	id       string
	document []byte
	err      error
}

// shardPages reads the pages of one shard.
type shardPages struct {
	client   *Client
	shard    int
	options  docservice.ScanOptions
	entries  []scanEntry
	complete bool // no page follows
}

// done reports whether there are no more entries.
func (p *shardPages) done() bool { return len(p.entries) == 0 && p.complete }

// read reads pages until there is an entry or the shard is complete.
func (p *shardPages) read(ctx context.Context) error {
	for len(p.entries) == 0 && !p.complete {
		if err := p.readPage(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (p *shardPages) readPage(ctx context.Context) error {
	var next []byte
	err := p.client.onShard(ctx, p.shard, func(one *docservice.Client) (err error) {
		p.entries = p.entries[:0]
		next, err = one.Scan(ctx, p.options, func(id string, document []byte, err error) error {
			p.entries = append(p.entries, scanEntry{id, slices.Clone(document), err})
			return nil
		})
		return err
	})
	p.complete, p.options.After = len(next) == 0, bytes.Clone(next)
	return err
}

// onShard calls f with a client of one shard, and again with those of other servers while
// they do not serve it.
func (c *Client) onShard(ctx context.Context, i int, f func(*docservice.Client) error) error {
	return c.OnShard(ctx, i, func(pool *boxcarrpc.Pool, _ *boxcarrpc.CallInfo) error {
		client := docservice.NewClient(pool, shard.Name(c.collection, i))
		if c.plain {
			client = client.Plain()
		}
		return f(client)
	})
}

// merge is a heap of shards by their next id.
type merge []*shardPages

func (m merge) Len() int           { return len(m) }
func (m merge) Less(i, j int) bool { return cmp.Less(m[i].entries[0].id, m[j].entries[0].id) }
func (m merge) Swap(i, j int)      { m[i], m[j] = m[j], m[i] }

// Push implements heap.Interface.
func (m *merge) Push(x any) { *m = append(*m, x.(*shardPages)) }

// Pop implements heap.Interface.
func (m *merge) Pop() any {
	last := (*m)[len(*m)-1]
	*m = (*m)[:len(*m)-1]
	return last
}

// readAll reads the first page of each shard.
func (m merge) readAll(ctx context.Context) error {
	return forShards(len(m), func(i int) error { return m[i].read(ctx) })
}

// forShards calls f for each shard, some at a time, and returns the first error.
func forShards(shards int, f func(i int) error) error {
	var running sync.WaitGroup
	failed := make([]error, shards)
	slots := make(chan struct{}, scanConcurrency)
	for i := range shards {
		slots <- struct{}{}
		running.Go(func() {
			failed[i] = f(i)
			<-slots
		})
	}
	running.Wait()
	for _, err := range failed {
		if err != nil {
			return err
		}
	}
	return nil
}

// ShardStats returns the description of each shard by one of its servers.
func (c *Client) ShardStats(ctx context.Context) ([]*docservicepb.CollectionStats, error) {
	r := c.current()
	if r == nil {
		return nil, ErrNoPlacement
	}
	stats := make([]*docservicepb.CollectionStats, r.placement.Layout.Shards)
	err := forShards(len(stats), func(i int) error {
		return c.onShard(ctx, i, func(one *docservice.Client) (err error) {
			stats[i], err = one.Stats(ctx)
			return err
		})
	})
	return stats, err
}

// Stats returns the sums over all shards; Ready means that all are. Positions and faults
// are those of single shards: see ShardStats.
func (c *Client) Stats(ctx context.Context) (*docservicepb.CollectionStats, error) {
	stats, err := c.ShardStats(ctx)
	if err != nil {
		return nil, err
	}
	sum := &docservicepb.CollectionStats{Name: c.collection, Ready: true}
	for _, s := range stats {
		sum.Ready = sum.Ready && s.GetReady()
		sum.LagBytes += s.GetLagBytes()
		sum.LagMilliseconds = max(sum.LagMilliseconds, s.GetLagMilliseconds())
		sum.Segments += s.GetSegments()
		sum.SegmentBytes += s.GetSegmentBytes()
		sum.SegmentDocuments += s.GetSegmentDocuments()
		sum.SegmentDeletes += s.GetSegmentDeletes()
		sum.EntriesApplied += s.GetEntriesApplied()
		sum.GetsFound += s.GetGetsFound()
		sum.GetsNotFound += s.GetGetsNotFound()
		sum.GetsUnavailable += s.GetGetsUnavailable()
		sum.GetsFailed += s.GetGetsFailed()
		sum.IndexTables += s.GetIndexTables()
		sum.IndexEntries += s.GetIndexEntries()
		sum.IndexBytes += s.GetIndexBytes()
		sum.FaultsNotListed += s.GetFaultsNotListed() + uint64(len(s.GetFaults()))
	}
	return sum, nil
}
