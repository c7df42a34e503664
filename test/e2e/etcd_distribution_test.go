//go:build linux

package e2e

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/internal/etcdtest"
)

// TestCommitsInEtcd publishes with the commits in etcd, loses all data of etcd, and restores
// it from the bucket. Commands without --etcd are refused.
func TestCommitsInEtcd(t *testing.T) {
	etcd := etcdtest.Start(t)
	p := newPublished(t, startS3(t), "--etcd", etcd.Address)
	documents := corpus(t)[:2_000]
	want := expected(documents)
	p.ingest(t, documents)
	p.release(t)
	require.Contains(t, p.refuses(t, append([]string{"announce"}, p.s3.flags...)...), "are made in etcd: give --etcd")
	require.Contains(t, p.refuses(t, append([]string{"restore"}, p.flags...)...), "nothing is lost")

	d := p.serve(t)
	d.waitReady(t)
	compareAll(t, newClient(t, d), want)
	load := startLoad(t, newClient(t, d), want)
	etcd.Lose(t)
	p.append(t, []document{{id: "new-1", line: []byte(`{"id":"new-1"}`)}})
	publish := append([]string{"publish", "--queue", p.queue}, p.flags...)
	require.Contains(t, p.refuses(t, publish...), "etcd does not hold this collection")
	p.updater(t, "restore")
	p.updater(t, "publish", "--queue", p.queue, "--quiet")
	p.release(t)
	d.waitDocument(t, "new-1", []byte(`{"id":"new-1"}`))
	p.updater(t, "manifests", "--verify")
	load.stop(t)
	d.Stop(t)
}

// TestServingWithoutEtcdAndBucket: while both are away no get fails, and a daemon starts and
// serves the last manifest. Afterwards the daemons serve the next manifest.
func TestServingWithoutEtcdAndBucket(t *testing.T) {
	etcd := etcdtest.Start(t)
	p := newPublished(t, startS3(t), "--etcd", etcd.Address)
	documents := corpus(t)[:2_000]
	want := expected(documents)
	p.ingest(t, documents)
	p.release(t)
	daemons := []*daemon{p.serve(t), p.serve(t)}
	for _, d := range daemons {
		d.waitReady(t)
	}
	load := startLoad(t, newClient(t, daemons[0]), want)

	etcd.Kill()
	p.s3.away.Store(true)
	away := time.Now()
	daemons[1].Kill()
	daemons[1].restart(t)
	daemons[1].waitReady(t)
	compareAll(t, newClient(t, daemons[1]), want)
	p.append(t, []document{{id: "new-1", line: []byte(`{"id":"new-1"}`)}})
	time.Sleep(outage() - time.Since(away))
	p.s3.away.Store(false)
	etcd.Restart(t)

	p.updater(t, "publish", "--queue", p.queue, "--quiet")
	p.release(t)
	for _, d := range daemons {
		d.waitDocument(t, "new-1", []byte(`{"id":"new-1"}`))
	}
	p.updater(t, "manifests", "--verify")
	load.stop(t)
	for _, d := range daemons {
		d.Stop(t)
	}
}

// TestDamagedObjectIsNotServed flips bytes of the files that the S3 server keeps. A damaged
// file is neither validated nor served, and a daemon that waits for it serves it when it is
// repaired.
func TestDamagedObjectIsNotServed(t *testing.T) {
	p := newPublished(t, startS3(t))
	documents := corpus(t)[:200] // in one segment
	p.ingest(t, documents)
	p.release(t)
	p.updater(t, "manifests", "--verify")
	files := p.s3.objects(t, "debian/file")
	require.Len(t, files, 1)
	size := fileSize(t, files[0])
	verify := append([]string{"manifests", "--verify"}, p.s3.flags...)
	for _, offset := range []int64{0, 40, size / 2, size - 40, size - 1} { // header, blocks, table, footer
		flipByte(t, files[0], offset)
		require.Contains(t, p.refuses(t, verify...), "1 damaged object")
		validate := append([]string{"validate", "--to", "1", "--quiet"}, p.s3.flags...)
		require.Contains(t, p.refuses(t, validate...), "digest")
		other := p.serve(t)
		other.WaitOutput(t, "following the collection's manifests failed")
		flipByte(t, files[0], offset)
		other.waitReady(t)
		compareAll(t, newClient(t, other), expected(documents))
		other.Stop(t)
	}
	for _, prefix := range []string{"debian/manifest", "debian/commit"} {
		object := p.s3.objects(t, prefix)[0]
		flipByte(t, object, fileSize(t, object)/2)
		require.Contains(t, p.refuses(t, verify...), "damaged object", object)
		flipByte(t, object, fileSize(t, object)/2)
	}
	p.updater(t, "manifests", "--verify")
}
