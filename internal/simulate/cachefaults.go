package simulate

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"io/fs"
	"time"

	"docstore/docservice/memcached"
	"docstore/internal/checksum"
	"docstore/internal/simulate/chance"
	"docstore/queue"
	"docstore/queue/codec"
	"docstore/queue/stored"
)

// caches are faults of the memcached that the servers share.
var caches = group{name: "memcached", probability: 0.4, others: []string{"server restart", "server kill"}, kinds: []faultKind{
	{name: "memcached has another history", cache: true, begin: func(w *world, _ *serverHost, _ Fault, d *chance.Draw) func() {
		w.must(w.cacheOtherHistory([]float64{0.1, 1}[d.Int(2)], d))
		return nil
	}},
	{name: "memcached away", cache: true, longest: time.Minute, begin: func(w *world, _ *serverHost, _ Fault, _ *chance.Draw) func() {
		return w.network.Host(cacheIP, "a").Isolate()
	}},
}}

// cacheOtherHistory stores in memcached what a fleet does that began with a copy of the queue and has
// got other records since: at a share of the addresses it has other documents of the same ids.
func (w *world) cacheOtherHistory(share float64, d *chance.Draw) error {
	servers, err := memcached.New(w.cacheAddresses(), &memcached.Options{Dial: w.clients.Dial})
	if err != nil {
		return err
	}
	defer func() { w.must(servers.Close()) }()
	for shard := range w.layout.Shards {
		err := w.scanQueue(w.layout.Dir(queueDir, shard), func(e queue.Entry, version int) error {
			if !e.Deleted && d.Bool(share) {
				servers.Set(0, cacheKey(e), otherForm(e, version), time.Time{}) // memcached may be away
			}
			return nil
		})
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // the updater has created no queue
			return err
		}
	}
	return nil
}

// otherVersions is more than the versions of an id in a run.
const otherVersions = 1_000_000

// otherForm returns the stored form of a document that was never written, with the id and the address
// of an entry.
func otherForm(e queue.Entry, version int) []byte {
	document := entry{id: string(e.ID), version: otherVersions + version}.record()
	h := stored.Header{Address: e.Address, RawAndFlags: stored.FlagRaw | uint32(len(document)), Codec: codec.None}
	form := append(make([]byte, stored.HeaderBytes), document...)
	h.Put(form)
	h.DocumentCRC = checksum.Of(form[8:18], form[4:8], e.ID, form[stored.HeaderBytes:])
	h.Put(form)
	return form
}

// cacheKey returns the key of an entry's document in memcached.
func cacheKey(e queue.Entry) string {
	key := append([]byte(nil), e.Next.Queue[:]...)
	key = binary.BigEndian.AppendUint32(key, uint32(e.Address.Segment))
	key = binary.BigEndian.AppendUint32(key, e.Address.Block)
	return hex.EncodeToString(binary.BigEndian.AppendUint16(key, e.Address.Index))
}
