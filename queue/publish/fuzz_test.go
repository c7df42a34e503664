package publish

import (
	"crypto/sha256"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/queue"
	"docstore/queue/shard"
)

// FuzzManifest: a manifest that is accepted has an object that is accepted as the same. The
// input is the text before compression.
func FuzzManifest(f *testing.F) {
	seed := Manifest{
		Number: 1, Time: time.UnixMilli(1).UTC(), Layout: shard.Layout{Shards: 1}, Heads: []queue.Head{{Sealed: 1, Highest: 1, Time: time.UnixMilli(0)}},
		Files: []File{{Name: "0000000001.seg", Size: 100, Documents: 3}},
	}
	add := func() {
		text, err := json.Marshal(seed.stored())
		require.NoError(f, err)
		f.Add(text)
	}
	add()
	seed.Layout, seed.Heads, seed.Files = shard.Layout{Shards: 2, Seed: 5}, make([]queue.Head, 2), nil
	add()
	f.Add([]byte(`{"format":9,"number":1}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		object := encoder().EncodeAll(text, nil)
		m, err := decodeManifest(object, Ref{Number: 1, Digest: sha256.Sum256(object)})
		if err != nil {
			return
		}
		again, ref, err := m.encode()
		require.NoError(t, err)
		got, err := decodeManifest(again, ref)
		require.NoError(t, err)
		twice, _, err := got.encode()
		require.NoError(t, err)
		require.Equal(t, again, twice)
	})
}

// FuzzManifestObject: bytes that are no compressed manifest are an error.
func FuzzManifestObject(f *testing.F) {
	f.Add([]byte{}, uint64(1))
	f.Add(encoder().EncodeAll([]byte(`{"format":1,"number":1}`), nil), uint64(1))
	f.Fuzz(func(t *testing.T, object []byte, number uint64) {
		m, err := decodeManifest(object, Ref{Number: number, Digest: sha256.Sum256(object)})
		if err == nil {
			require.Equal(t, number, m.Number)
		}
		_, err = decodeManifest(object, Ref{Number: number})
		require.ErrorIs(t, err, ErrCorrupt, "another digest")
	})
}

// FuzzCommit: a commit that is accepted is encoded and accepted again as the same.
func FuzzCommit(f *testing.F) {
	text, err := json.Marshal(&commit{Format: recordFormat, Number: 1, Nonce: "n", Time: time.UnixMilli(1).UTC(), Record: Record{
		Format: recordFormat, Queue: "q", Epoch: 1, Owner: "o", Head: Ref{Number: 2}, Pins: []Pin{{To: Ref{Number: 1}, By: "olga"}}, Bad: []Range{{From: 2, To: 2}},
	}})
	require.NoError(f, err)
	f.Add(text)
	f.Add([]byte(`{}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := decodeCommit("commit/1", data)
		if err != nil {
			return
		}
		again, err := json.Marshal(c)
		require.NoError(t, err)
		got, err := decodeCommit("commit/1", again)
		require.NoError(t, err)
		twice, err := json.Marshal(got)
		require.NoError(t, err)
		require.Equal(t, string(again), string(twice))
	})
}

// FuzzIncrement: an increment that is accepted has the queues of its manifest, and its header
// is accepted again.
func FuzzIncrement(f *testing.F) {
	base := Ref{Number: 3, Digest: Digest{7}}
	for queues, i := range map[int]*Increment{
		1: {Base: base, Number: 2, Nonce: "n", Parts: []Part{{Segment: 4, From: 10, To: 20}}},
		2: {Base: base, Number: 2, Nonce: "n", Parts: []Part{{Segment: 4, From: 10, To: 20}, {Segment: 1, From: 1, To: 1}}},
	} {
		header, _, err := i.encode()
		require.NoError(f, err)
		f.Add(append(header, make([]byte, 10)...), queues)
	}
	f.Fuzz(func(t *testing.T, object []byte, queues int) {
		if queues < 1 || queues > 16 {
			return
		}
		stored, rest, err := decodeIncrement(object, base, 2, queues)
		if err != nil {
			return
		}
		require.Len(t, stored.Parts, queues)
		require.LessOrEqual(t, len(rest), len(object))
		header, _, err := stored.encode()
		require.NoError(t, err)
		if int64(len(header)) > headerLimit(queues) {
			return // it has characters that are escaped
		}
		again, rest, err := decodeIncrement(header, base, 2, queues)
		require.NoError(t, err)
		require.Empty(t, rest)
		require.Equal(t, stored.Parts, again.Parts)
	})
}
