package canary_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/internal/canary"
	"docstore/queue/shard"
)

func TestIDs(t *testing.T) {
	require.Equal(t, [][]byte{[]byte("docstore-canary-append-0")}, canary.IDs(1, shard.Layout{Shards: 1}.Shard))
	for _, layout := range []shard.Layout{{Shards: 2, Seed: 1}, {Shards: 64, Seed: 5}, {Shards: 1024, Seed: 1 << 63}} {
		ids := canary.IDs(layout.Shards, layout.Shard)
		require.Len(t, ids, layout.Shards)
		for i, id := range ids {
			require.Equal(t, i, layout.Shard(id))
			require.True(t, canary.Is(id) && canary.IsOfAppend(id))
		}
	}
	require.True(t, canary.Is([]byte(canary.Prefix)))
	require.False(t, canary.IsOfAppend([]byte(canary.Prefix)))
}

func TestDecode(t *testing.T) {
	now := time.Date(2026, 11, 28, 1, 2, 3, 4e6, time.UTC)
	sent := canary.New("docstore-canary-append-0", now)
	sent.SourceAgeSeconds = 1.5
	document, err := sent.Encode()
	require.NoError(t, err)
	require.JSONEq(t, `{"id":"docstore-canary-append-0","sent":"2026-11-28T01:02:03.004Z","source_age_seconds":1.5,"_expires":"2026-11-29T01:02:03Z"}`, string(document))
	got, ok := canary.Decode(document)
	require.True(t, ok)
	require.Equal(t, sent, got)
	require.Equal(t, 1500*time.Millisecond, got.SourceAge())
	for name, foreign := range map[string]string{
		"not JSON": "sent", "no object": "[]", "without a time": `{"id":"a"}`, "another time": `{"sent":"today"}`,
		"negative age": `{"sent":"2026-11-28T01:02:03Z","source_age_seconds":-1}`, "infinite age": `{"sent":"2026-11-28T01:02:03Z","source_age_seconds":1e300}`,
		"cut short": strings.TrimSuffix(string(document), "}"),
	} {
		_, ok := canary.Decode([]byte(foreign))
		require.False(t, ok, name)
	}
}

// FuzzDecode: an accepted document has a sensible age, and survives encoding.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"id":"docstore-canary","nonce":"n","sent":"2026-11-21T10:00:00Z","_expires":"2026-11-22T10:00:00Z"}`))
	f.Add([]byte(`{"sent":"2026-11-21T10:00:00+01:00","source_age_seconds":1e-9}`))
	f.Fuzz(func(t *testing.T, document []byte) {
		d, ok := canary.Decode(document)
		if !ok {
			return
		}
		if d.SourceAge() < 0 {
			t.Fatal(d.SourceAge())
		}
		encoded, err := d.Encode()
		if err != nil {
			t.Fatal(err)
		}
		again, ok := canary.Decode(encoded)
		if !ok || !again.Sent.Equal(d.Sent) || again.SourceAgeSeconds != d.SourceAgeSeconds {
			t.Fatalf("%s: %+v", encoded, again)
		}
	})
}
