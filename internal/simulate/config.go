package simulate

import (
	"encoding/json"
	"fmt"
	"time"

	"docstore/internal/simulate/chance"
	"docstore/queue/shard"
)

// Config is what a seed decides before a run.
type Config struct {
	Seed    uint64
	Servers int
	// Shards are the shards of the collection, if there are several. Columns of equal size hold
	// them, by a placement in etcd.
	Shards  int `json:",omitempty"`
	Columns int `json:",omitempty"`
	// Copies: servers serve copies of the directory of the queue, which docstore-sync makes, and
	// there is no object store. CopyDeletes is its --delete.
	Copies      bool `json:",omitempty"`
	CopyDeletes bool `json:",omitempty"`
	// Echo: another service that uses boxcarrpc runs with its clients.
	Echo       bool `json:",omitempty"`
	Zones      int
	Codec      string
	Increments bool // documents are announced within seconds, not with the next manifest
	// Large: documents have several KB, and clients ask for hundreds at a time, so that responses wait for
	// the memory of each other.
	Large bool `json:",omitempty"`
	// Secure: servers of documents require TLS and tokens.
	Secure bool `json:",omitempty"`
	// Canaries is the interval at which append puts a canary into each shard; 0: it puts none. Their
	// ages are right only by right clocks.
	Canaries     time.Duration `json:",omitempty"`
	Cache        bool          // servers share a memcached
	Memory       int64         // of each server, in bytes
	IDs          int           // the number of ids that are written
	Rate         float64       // records a second
	SegmentBytes int64
	// SegmentAge is the age at which segments are sealed; 0: that of segmentAge.
	SegmentAge time.Duration `json:",omitempty"`
	Work       time.Duration // the time of the workload and of the faults
	// Destructive: faults destroy data for good, and there are many. Answers must be right; nothing
	// has to recover.
	Destructive bool `json:",omitempty"`
	// Clocks is the maximum error of the clocks of servers and ingest hosts. They step.
	Clocks time.Duration `json:",omitempty"`
	Pools  *Pools        `json:",omitempty"` // not nil: servers and front ends without documents
	Faults []Fault
}

// Fault is one fault of a schedule.
type Fault struct {
	At     time.Duration // since the start
	Kind   string
	Target string        // the host; empty: the kind has one target
	For    time.Duration // until it ends; 0: it has no duration
	Files  string        `json:",omitempty"` // pattern of the names of files that it concerns
	Draw   uint64        // seed of what else is decided
}

// String describes the fault.
func (f Fault) String() string {
	text := fmt.Sprintf("%v %s", f.At.Round(time.Millisecond), f.Kind)
	if f.Target != "" {
		text += " of " + f.Target
	}
	if f.Files != "" {
		text += ", files " + f.Files
	}
	if f.For > 0 {
		text += fmt.Sprintf(", for %v", f.For.Round(time.Millisecond))
	}
	return text
}

// Draw returns the configuration of a seed.
func Draw(seed uint64) Config {
	d := chance.New(seed).Next("config")
	c := Config{
		Seed: seed, Servers: d.Between(1, 3), Zones: d.Between(1, 2), Codec: []string{"none", "s2", "zstd"}[d.Int(3)],
		Increments: d.Bool(0.7), Cache: d.Bool(0.5), Memory: []int64{16 << 20, 32 << 20, 64 << 20}[d.Int(3)],
		IDs: []int{20, 200, 2000}[d.Int(3)], Rate: []float64{2, 20, 100}[d.Int(3)],
		SegmentBytes: []int64{32 << 10, 128 << 10, 1 << 20}[d.Int(3)],
		Work:         d.Duration(30*time.Second, 5*time.Minute),
	}
	if d.Bool(0.4) {
		c.Shards, c.Columns = 2<<d.Int(3), d.Between(1, 3)
		c.Servers = c.Columns * d.Between(1, 2)
	}
	if copies := chance.New(seed).Next("copies"); c.Shards == 0 && copies.Bool(0.4) {
		c.Copies, c.CopyDeletes = true, copies.Bool(0.5)
	}
	echo := chance.New(seed).Next("echo")
	c.Echo = echo.Bool(0.3)
	mode := chance.New(seed).Next("destructive")
	c.Destructive = mode.Bool(0.1)
	c.Faults = drawFaults(&d, &c)
	if large := chance.New(seed).Next("large"); large.Bool(0.15) {
		c.Large, c.IDs, c.Rate, c.SegmentBytes, c.Memory = true, 200, min(c.Rate, 20), 1<<20, 16<<20
	}
	secure := chance.New(seed).Next("secure")
	c.Secure = secure.Bool(0.15)
	if clocks := chance.New(seed).Next("clocks"); clocks.Bool(0.15) {
		c.Clocks = []time.Duration{5 * time.Second, 5 * time.Minute, 2 * time.Hour}[clocks.Int(3)]
	}
	if canaries := chance.New(seed).Next("canaries"); c.Clocks == 0 && canaries.Bool(0.5) {
		c.Canaries = []time.Duration{2 * time.Second, 20 * time.Second}[canaries.Int(2)]
	}
	if outage := chance.New(seed).Next("outage"); !c.Destructive && outage.Bool(outageShare) {
		c.Rate = min(c.Rate, 2)
		c.Work, c.Faults = drawOutage(&outage, c)
	}
	return c
}

// segmentAge is the age at which segments are sealed: without increments, documents wait for it.
func (c Config) segmentAge() time.Duration {
	switch {
	case c.SegmentAge > 0:
		return c.SegmentAge
	case c.Increments:
		return time.Minute
	}
	return 5 * time.Second
}

// batchIDs is the most ids of a batch.
func (c Config) batchIDs() int {
	if c.Large {
		return largeBatchIDs
	}
	return smallBatchIDs
}

// layout returns the layout of the collection.
func (c Config) layout() shard.Layout {
	if c.Shards > 1 {
		return shard.Layout{Shards: c.Shards, Seed: c.Seed}
	}
	return shard.Layout{Shards: 1}
}

// columnOf returns the column of a server.
func (c Config) columnOf(server int) string {
	if c.Columns == 0 {
		return ""
	}
	return string(rune('a' + server%c.Columns))
}

// String describes the configuration without its faults.
func (c Config) String() string {
	c.Faults = nil
	text, err := json.Marshal(c)
	if err != nil {
		return err.Error()
	}
	return string(text)
}
