// Package capacity computes the machines that a collection needs, from costs that were measured.
package capacity

import (
	"fmt"
	"math"
)

// The costs of a document of 0.91 KB with an id of 29 bytes, on an AMD EPYC in 2026; docs/operating.md
// says how to measure others.
const (
	StoredShare     = 0.47   // bytes in the queue, compressed with s2, relative to those of the input
	entryBytes      = 36     // of the index, without the id
	memoryBytes     = 5.4    // of --memory, for filters, tags and memtables
	minMemory       = 256e6  // of --memory, for requests, responses and memtables
	runtimeBytes    = 128e6  // of Go's runtime, and of the process
	indexCores      = 2e-6   // seconds of a core to index it
	singleCores     = 2.5e-6 // seconds of a core to answer a request for it
	batchCores      = 1.5e-6 // the same in batches of 50
	frameBytes      = 60     // of a response, besides the stored document
	deadShare       = 0.5    // the default of compact --max-dead
	busyShare       = 0.6    // of the processors at the peak, so that latencies stay low
	memoryShare     = 0.9    // of the memory of a machine
	SpareMachines   = 2      // of each column: one is restarted while another one fails
	shardsPerColumn = 20
)

// Workload describes a collection, its use, and the machines.
type Workload struct {
	Documents float64
	Bytes     float64 // mean size of a document
	Stored    float64 // mean size of a document in the queue; 0: StoredShare of Bytes
	IDBytes   float64 // mean size of an id
	Hot       float64 // the share of the documents that most requests are for, 0 to 1: they are to be in memory
	Rate      float64 // documents a second that front ends fetch at the peak
	Batch     float64 // mean number of documents of a request
	Changes   float64 // documents that are added or changed a second
	Memory    float64 // bytes of a machine
	Cores     float64 // of a machine
}

// Check returns an error if the workload is not possible.
func (w *Workload) Check() error {
	for _, v := range []struct {
		name       string
		value      float64
		least, max float64
	}{
		{"documents", w.Documents, 1, 1e13}, {"bytes", w.Bytes, 1, 16 << 20}, {"stored", w.Stored, 0, 16 << 20}, {"id-bytes", w.IDBytes, 1, 1024},
		{"hot", w.Hot, 0, 1}, {"rate", w.Rate, 0, 1e10}, {"batch", w.Batch, 1, 16384}, {"changes", w.Changes, 0, 1e9},
		{"machine-memory", w.Memory, 1e9, 1e14}, {"machine-cores", w.Cores, 1, 4096},
	} {
		if !(v.value >= v.least && v.value <= v.max) {
			return fmt.Errorf("--%s %g is not between %g and %g", v.name, v.value, v.least, v.max)
		}
	}
	return nil
}

// Plan is what a workload needs. Sizes are bytes.
type Plan struct {
	// Of the whole collection.
	Queue   float64 `json:"queue_bytes"` // with documents that were replaced
	Index   float64 `json:"index_bytes"`
	Appends float64 `json:"append_bytes_per_second"` // that updaters write, and each copy receives
	Columns int     `json:"columns"`                 // groups of machines with the same documents
	Shards  int     `json:"shards"`                  // 0: the collection is not divided

	Machines int `json:"machines_per_column"`
	// Of a machine.
	Disk      float64 `json:"disk_bytes"`            // while a compaction arrives and the index is merged
	Memory    float64 `json:"memory_bytes"`          // --memory
	PageCache float64 `json:"page_cache_bytes"`      // for the index and the hot documents
	Machine   float64 `json:"machine_memory_bytes"`  // Memory, PageCache and the process
	Cores     float64 `json:"busy_cores"`            // at the peak, while SpareMachines of its column are away
	Network   float64 `json:"sent_bytes_per_second"` // then
}

// Of returns the plan of a workload. A collection is divided if one machine cannot have its index and
// its hot documents in memory.
func (w *Workload) Of() Plan {
	stored := w.Stored
	if stored == 0 {
		stored = StoredShare * w.Bytes
	}
	index := w.IDBytes + entryBytes
	cached := w.Documents * (index + w.Hot*stored)
	grows := w.Documents*memoryBytes + cached
	p := Plan{Columns: max(1, int(math.Ceil(grows/max(1, memoryShare*w.Memory-minMemory-runtimeBytes))))}
	if p.Columns > 1 {
		p.Shards = shardsPerColumn * p.Columns
	}
	part := 1 / float64(p.Columns)
	p.Queue = w.Documents * stored / (1 - deadShare)
	p.Index = w.Documents * index
	p.Appends = w.Changes * stored
	p.Disk = part * (p.Queue + w.Documents*stored + 2*p.Index)
	p.Memory = max(minMemory, part*w.Documents*memoryBytes)
	p.PageCache = part * cached
	p.Machine = p.Memory + p.PageCache + runtimeBytes

	seconds := batchCores + (singleCores-batchCores)/w.Batch
	answering, indexing := part*w.Rate*seconds, part*w.Changes*indexCores
	carrying := max(1, math.Ceil(answering/max(0.01, busyShare*w.Cores-indexing)))
	p.Machines = int(carrying) + SpareMachines
	p.Cores = answering/carrying + indexing
	p.Network = part * w.Rate * (stored + frameBytes) / carrying
	return p
}
