//go:build linux

package e2e

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/boxcarrpc/discovery/etcd"
	"docstore/docservice"
	"docstore/docservice/placement"
	"docstore/docservice/sharded/etcdclient"
	"docstore/internal/crashtest"
	"docstore/internal/testseed"
)

const columnRows = 3

// TestNineDaemons runs three columns by three rows through rounds in which a column comes and
// goes, rows come and go, daemons are killed, also the placer while shards move, and etcd is
// away. A canary reads all ids all the time: no id that exists is "not found", no document
// is wrong, and no call fails.
func TestNineDaemons(t *testing.T) {
	documents := corpus(t)[:2_000]
	want := unchanging(expected(documents))
	f := newColumnFleet(t, t.TempDir(), columnRows, documents, false)
	r := testseed.Rand(t)
	c := f.startCanary(newAccount(), want, nil)
	for round := range crashtest.Share(3, 20) {
		begun := time.Now()
		name := []string{"a", "b", "c"}
		victims := r.Perm(columnRows)
		// A new column of two rows receives shards, while the placer is killed.
		f.grow("d").waitReady(t)
		f.grow("d").waitReady(t)
		f.waitLive("d")
		f.apply()
		f.waitMoving()
		if crashtest.Soak() || round == 0 { // the election of another one takes the time of a lease
			placer := f.placer()
			f.kill(placer)
			c.require("the placer is killed")
			f.restart(placer)
		}
		f.waitPlaced()
		c.require("a column has been added")
		// One column keeps one row, another one two, and the third loses a row while etcd is away.
		first, second := f.columns[name[round%3]][victims[0]], f.columns[name[(round+1)%3]][victims[1]]
		last := f.columns[name[round%3]][victims[1]]
		f.kill(first)
		f.kill(last)
		f.kill(second)
		without := crashtest.Soak() || round == 1
		if without {
			f.etcd.Kill()
			time.Sleep(time.Duration(r.IntN(2000)) * time.Millisecond)
			c.require("etcd is away")
		}
		third := f.columns[name[(round+2)%3]][victims[2]]
		f.kill(third)
		f.restart(third)
		c.require("a daemon has restarted, without etcd too")
		if without {
			f.etcd.Restart(t)
		}
		f.restart(first)
		f.restart(last)
		f.restart(second)
		// A row more, and the column is drained and removed.
		extra := f.grow(name[r.IntN(3)])
		extra.waitReady(t)
		extra.poll(t, "/metrics", func(_ int, body []byte) bool {
			require.Regexp(t, `docstore_manifest_fetched_bytes_total{collection="debian/\d+",source="peer"} [1-9]`, string(body), "files come from the column")
			return true
		})
		f.placement("drain", "d")
		f.waitMoving()
		f.stop(extra)
		for column, rows := range f.columns {
			f.columns[column] = slices.DeleteFunc(rows, func(d *daemon) bool { return d == extra })
		}
		f.waitPlaced()
		m, _ := f.store.Map()
		require.False(t, slices.ContainsFunc(m.Shards, func(p placement.Place) bool { return p.Column == "d" || p.Next == "d" }))
		for _, d := range f.columns["d"] {
			d.Stop(t)
		}
		delete(f.columns, "d")
		f.placement("undrain", "d")
		c.require("the column has been drained")
		t.Logf("round %d: %s, epoch %d", round, time.Since(begun).Round(time.Millisecond), m.Epoch)
	}
	c.stop()
	f.wrongMap(want)
	for _, d := range f.daemons() {
		d.Stop(t)
	}
}

// wrongMap writes a map that assigns each shard to a column that does not have it. No id is
// "not found", and in the end the columns have the shards that the map assigns to them.
func (f *columnFleet) wrongMap(want unchanging) {
	f.t.Helper()
	m, _ := f.store.Map()
	wrong := *m
	wrong.Epoch++
	wrong.Shards = slices.Clone(m.Shards)
	next := map[string]string{"a": "b", "b": "c", "c": "a"}
	for i, p := range m.Shards {
		wrong.Shards[i] = placement.Place{Column: next[p.Column]}
	}
	require.NoError(f.t, f.store.UpdateControl(f.t.Context(), func(c *placement.Control) error {
		for i, p := range wrong.Shards {
			c.Wanted[i] = p.Column
		}
		return nil
	}))
	content, err := json.Marshal(wrong)
	require.NoError(f.t, err)
	connection, err := etcd.Connect("etcd://"+f.etcd.Address+"/docstore", nil)
	require.NoError(f.t, err)
	defer connection.Close()
	_, err = connection.Put(f.t.Context(), "docstore/"+collectionName+"/placement/map", string(content))
	require.NoError(f.t, err)
	client, err := etcdclient.Open(f.etcd.Address, collectionName, nil)
	require.NoError(f.t, err)
	defer client.Close()
	f.eventually("all ids are served by the columns of the wrong map", func(ctx context.Context) bool {
		unavailable := 0
		for documents := range slices.Chunk(f.documents, 500) {
			var ids []string
			for _, d := range documents {
				ids = append(ids, d.id)
			}
			require.NoError(f.t, client.GetMany(ctx, ids, func(i int, document []byte, err error) error {
				if err != nil {
					require.ErrorIs(f.t, err, docservice.ErrUnavailable, ids[i])
					unavailable++
					return nil
				}
				require.Equal(f.t, string(want[ids[i]]), string(document))
				return nil
			}))
		}
		now, _ := f.store.Map()
		return unavailable == 0 && strings.Contains(now.Shards[0].Column, wrong.Shards[0].Column)
	})
}
