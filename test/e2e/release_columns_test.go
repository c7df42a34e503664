//go:build linux

package e2e

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/internal/etcdtest"
	"docstore/internal/freeport"
	"docstore/internal/testprocess"
)

// TestLastReleaseOfColumns upgrades a published collection with shards and rolls the upgrade
// back: updaters of both versions continue the queue and the bucket, servers of both versions
// are rows of one column and continue the data of the other version, and clients of both read
// from both.
//
// With less memory, a batch over the shards of a server of the release waits for memory that it holds
// itself if other connections of this host hold most of their share.
func TestLastReleaseOfColumns(t *testing.T) {
	t.Parallel()
	versions := buildVersions(t)
	etcd, dir := etcdtest.Start(t), t.TempDir()
	url := "file://" + filepath.Join(dir, "bucket")
	queue := filepath.Join(dir, "queue")
	flags := []string{"--bucket", url, "--etcd", etcd.Address}
	const part, shards = 500, 4
	documents := corpus(t)[:4*part]
	for step, updater := range []string{"release", "now", "release", "now"} {
		have := documents[:(step+1)*part]
		versions.run(t, updater, "docstore-updater", ndjson(have[step*part:]), "append", "--queue", queue, "--shards", fmt.Sprint(shards),
			"--publish", url, "--etcd", etcd.Address, "--quiet")
		versions.run(t, updater, "docstore-updater", nil, append([]string{"validate", "--quiet"}, flags...)...)
		versions.run(t, updater, "docstore-updater", nil, append([]string{"announce"}, flags...)...)
		other := map[string]string{"release": "now", "now": "release"}[updater]
		var rows []*daemon
		for row, version := range []string{updater, other} {
			d := &daemon{boxcar: freeport.Address(t), http: freeport.Address(t)}
			d.Command = testprocess.Start(t, exec.Command(filepath.Join(versions[version], "docserviced"), "serve", "--collection", collectionName+"="+url,
				"--etcd", etcd.Address, "--column", "a", "--data", filepath.Join(dir, []string{"data-0", "data-1"}[row]),
				"--boxcar", d.boxcar, "--http", d.http, "--memory", "64MiB"))
			rows = append(rows, d)
		}
		if step == 0 {
			f := &columnFleet{t: t, etcd: etcd, columns: map[string][]*daemon{"a": rows}}
			f.openStore()
			f.waitLive("a")
			versions.run(t, updater, "docserviced", nil, "placement", "apply", "--etcd", etcd.Address, "--collection", collectionName)
			f.waitPlaced()
			f.waitServed(len(rows) * shards)
		}
		for _, d := range rows {
			d.waitReady(t)
			d.waitDocument(t, have[len(have)-1].id, have[len(have)-1].line)
		}
		for _, client := range []string{"release", "now"} {
			versions.requireAll(t, client, have, "--etcd", etcd.Address)
			for i, d := range rows {
				if version := []string{updater, other}[i]; client == "now" || version == "now" {
					versions.requireAll(t, client, have, "--servers", d.boxcar)
				}
			}
			require.Contains(t, versions.run(t, client, "docserviced", nil, "placement", "show", "--etcd", etcd.Address, "--collection", collectionName), "column a")
		}
		for _, d := range rows {
			d.Stop(t)
		}
	}
	versions.run(t, "release", "docstore-updater", nil, append([]string{"manifests", "--verify"}, flags...)...)
	versions.run(t, "now", "docstore-updater", nil, append([]string{"manifests", "--verify"}, flags...)...)
}
