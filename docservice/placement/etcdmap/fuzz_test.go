package etcdmap

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/docservice/placement"
)

// FuzzMap: a placement that is accepted has a place for each shard, and is accepted again.
func FuzzMap(f *testing.F) {
	m := newMap("g", 2)
	m.Shards[1] = placement.Place{Column: "a", Next: "b", Previous: "c"}
	text, err := json.Marshal(m)
	require.NoError(f, err)
	f.Add(text)
	f.Add([]byte(`{"collection":"jobs","layout":{"shards":-1}}`))
	s := &Store{collection: "jobs"}
	f.Fuzz(func(t *testing.T, content []byte) {
		m, err := s.parse(content)
		if err != nil {
			return
		}
		require.Len(t, m.Shards, m.Layout.Shards)
		require.Less(t, m.Layout.ShardString("4711"), m.Layout.Shards)
		for _, p := range m.Shards {
			require.NotPanics(t, func() { m.Holds(p.Column) })
		}
		again, err := json.Marshal(m)
		require.NoError(t, err)
		got, err := s.parse(again)
		require.NoError(t, err)
		require.Equal(t, m, got)
	})
}
