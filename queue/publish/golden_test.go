package publish

import (
	"crypto/sha256"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/queue"
	"docstore/queue/shard"
)

var update = flag.Bool("update", false, "write the golden files; only together with a new format")

// golden returns a golden file, which must be the JSON of value.
func golden(t *testing.T, name string, value any) []byte {
	t.Helper()
	path := filepath.Join("testdata", name+".json")
	content, err := json.Marshal(value)
	require.NoError(t, err)
	if *update {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(path, append(content, '\n'), 0o644))
	}
	file, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(file), string(content)+"\n", "the format has changed")
	return file
}

// The objects of format 1 and 2 in a bucket must stay readable.
func TestGoldenObjects(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 6_000_000, time.UTC)
	digest := func(text string) Digest { return sha256.Sum256([]byte(text)) }
	before := Ref{Number: 6, Digest: digest("manifest 6")}
	head := queue.Head{Queue: [16]byte([]byte("0123456789abcdef")), Highest: 2, Sealed: 1, Digest: [32]byte(digest("footer")), Time: at.Local()}
	file := func(name string) File {
		return File{
			Name: name, Size: 300, Digest: digest(name), Epoch: 3, Footer: Hex16{1}, Follows: Hex16{2}, Ends: Hex16{3}, Documents: 4, Deletes: 1,
		}
	}
	for name, m := range map[string]*Manifest{
		"manifest-1": {
			Number: 7, Previous: before, Parent: &Ref{Number: 5, Digest: digest("manifest 5")}, Time: at, Layout: shard.Layout{Shards: 1},
			Heads: []queue.Head{head}, Files: []File{file("0000000001.seg")},
		},
		"manifest-2": {
			Number: 7, Previous: before, Time: at, Layout: shard.Layout{Shards: 2, Seed: 123},
			Heads: []queue.Head{{Time: at.Local()}, head}, Files: []File{file("shard-0001/0000000001.seg")},
		},
	} {
		object := encoder().EncodeAll(golden(t, name, m.stored()), nil)
		got, err := decodeManifest(object, Ref{Number: 7, Digest: sha256.Sum256(object)})
		require.NoError(t, err, name)
		require.Equal(t, m, got, name)
	}

	c := &commit{Format: recordFormat, Number: 9, Previous: digest("commit 8"), Nonce: "nonce", Time: at, Record: Record{
		Format: recordFormat, Queue: "30313233343536373839616263646566", Incarnation: "incarnation", Epoch: 3, Owner: "owner",
		Head: before, Validated: before, Announced: before, Oldest: 2, Retained: []Ref{before},
		Pins: []Pin{{Group: "canary", To: before, By: "anna", Reason: "typo", Time: at}}, Canaries: []Canary{{Group: "zone-a", To: before, By: "ben", Time: at}},
		Bad: []Range{{From: 3, To: 4}}, Served: 6, Frozen: true, Clean: 7, Base: &before, Generations: []uint64{1, 5}, Increments: true, Held: "too many deletes",
	}}
	got, err := decodeCommit("commit", golden(t, "commit-1", c))
	require.NoError(t, err)
	require.Equal(t, c, got)

	part := Part{Segment: 2, From: 128, To: 200, Prefix: digest("prefix"), Sealed: true}
	for name, i := range map[string]*Increment{
		"increment-1": {Base: before, Number: 2, Previous: digest("increment 1"), Epoch: 3, Nonce: "nonce", Time: at, Parts: []Part{part}},
		"increment-2": {Base: before, Number: 2, Previous: digest("increment 1"), Epoch: 3, Nonce: "nonce", Time: at, Parts: []Part{part, part}},
	} {
		header, _, err := i.encode()
		require.NoError(t, err)
		got, rest, err := decodeIncrement(golden(t, name, json.RawMessage(header)), before, 2, len(i.Parts))
		require.NoError(t, err, name)
		require.Empty(t, rest)
		require.Equal(t, i, got.Increment, name)
	}
}
