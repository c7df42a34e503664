package peers_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/errors"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"docstore/boxcarrpc"
	"docstore/boxcarrpc/discovery"
	"docstore/docservice/peers"
	"docstore/internal/vfs"
	"docstore/queue"
	"docstore/queue/bucket"
	"docstore/queue/publish"
	"docstore/queue/shard"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// published is a bucket with a manifest of one file.
type published struct {
	bucket  *countingBucket
	m       *publish.Manifest
	dir     string // the queue
	content []byte // of the file
}

// countingBucket counts the reads of files.
type countingBucket struct {
	bucket.Bucket
	files atomic.Int64
}

func (b *countingBucket) Get(ctx context.Context, name string, offset, length int64) (io.ReadCloser, error) {
	if strings.HasPrefix(name, "file/") {
		b.files.Add(1)
	}
	return b.Bucket.Get(ctx, name, offset, length)
}

func newPublished(t *testing.T) *published {
	t.Helper()
	dir := t.TempDir()
	w, err := queue.OpenWriter(dir, &queue.WriterOptions{Codec: "none"})
	require.NoError(t, err)
	for i := range 300 {
		_, err := w.Append([]byte{byte(i), byte(i >> 8)}, bytes.Repeat([]byte{byte(i)}, 1000))
		require.NoError(t, err)
	}
	require.NoError(t, w.Seal())
	require.NoError(t, w.Close())
	inner, err := bucket.OpenDir(vfs.OS, t.TempDir())
	require.NoError(t, err)
	b := &countingBucket{Bucket: inner}
	p, err := publish.OpenPublisher(t.Context(), b, dir, nil)
	require.NoError(t, err)
	published1, err := p.Publish(t.Context())
	require.NoError(t, err)
	require.NoError(t, p.Close())
	require.Len(t, published1.Manifest.Files, 1)
	content, err := os.ReadFile(filepath.Join(dir, published1.Manifest.Files[0].Name))
	require.NoError(t, err)
	return &published{bucket: b, m: published1.Manifest, dir: dir, content: content}
}

// fetch makes a replica that may ask the peers, and compares it.
func (p *published) fetch(t *testing.T, client *peers.Client) {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, publish.NewReplica(p.bucket, dir, &publish.Options{Source: client.Source("jobs")}).Fetch(t.Context(), p.m))
	content, err := os.ReadFile(filepath.Join(dir, p.m.Files[0].Name))
	require.NoError(t, err)
	require.True(t, bytes.Equal(p.content, content))
}

// startPeer serves streams, and returns the address.
func startPeer(t *testing.T, handler boxcarrpc.StreamHandler) string {
	t.Helper()
	none := func(_ context.Context, _ string, _, dst []byte) ([]byte, error) { return dst, nil }
	server := boxcarrpc.NewServer(none, &boxcarrpc.ServerOptions{StreamHandler: handler})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
	return listener.Addr().String()
}

// serveDir returns a Server of the files of a directory, as those of the collection jobs.
func serveDir(dir string, opts *peers.ServerOptions) *peers.Server {
	return peers.NewServer(func(collection string) (string, bool) { return dir, collection == "jobs" }, opts)
}

func newClient(t *testing.T, addresses ...string) *peers.Client {
	c := peers.NewClient(discovery.Static(addresses...), nil)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	require.Eventually(t, func() bool { return c.Stats().Peers == len(addresses) }, 10*time.Second, time.Millisecond)
	return c
}

func TestFileComesFromPeer(t *testing.T) {
	p := newPublished(t)
	server := serveDir(p.dir, nil)
	var batch atomic.Int64
	client := newClient(t, startPeer(t, func(ctx context.Context, method string, stream *boxcarrpc.ServerStream) error {
		if boxcarrpc.IsBatch(ctx) {
			batch.Add(1)
		}
		return server.Handle(ctx, method, stream)
	}))
	for range 3 {
		p.fetch(t, client)
	}
	require.EqualValues(t, 3, batch.Load(), "an overloaded server refuses copies before requests")
	require.Zero(t, p.bucket.files.Load())
	require.EqualValues(t, 3*len(p.content), server.Stats().SentBytes)
	require.EqualValues(t, 3*len(p.content), client.Stats().ReceivedBytes)
	require.Eventually(t, func() bool { return server.Stats().Transfers == 0 }, 10*time.Second, time.Millisecond)
}

// lateSource knows the servers after a while.
type lateSource struct{ discovery.Source }

func (l lateSource) Watch(ctx context.Context, update func(discovery.Snapshot)) error {
	time.Sleep(50 * time.Millisecond)
	return l.Source.Watch(ctx, update)
}

// TestFirstFileWaitsForTheListOfPeers fetches a file right after the start.
func TestFirstFileWaitsForTheListOfPeers(t *testing.T) {
	p := newPublished(t)
	client := peers.NewClient(lateSource{discovery.Static(startPeer(t, serveDir(p.dir, nil).Handle))}, nil)
	defer client.Close()
	p.fetch(t, client)
	require.Zero(t, p.bucket.files.Load())
}

// TestFlippedByteOfPeerIsNotAccepted changes a byte in each part of the peer's copy. The
// file comes from the bucket, unless the peer sees the damage itself.
func TestFlippedByteOfPeerIsNotAccepted(t *testing.T) {
	p := newPublished(t)
	for at := 0; at < len(p.content); at += len(p.content)/40 + 1 {
		dir := t.TempDir()
		damaged := bytes.Clone(p.content)
		damaged[at] ^= 1
		require.NoError(t, os.WriteFile(filepath.Join(dir, p.m.Files[0].Name), damaged, 0o600))
		client := newClient(t, startPeer(t, serveDir(dir, nil).Handle))
		before := p.bucket.files.Load()
		p.fetch(t, client)
		p.fetch(t, client) // the peer is not asked again
		require.EqualValues(t, before+2, p.bucket.files.Load())
		require.LessOrEqual(t, client.Stats().Damaged, uint64(1))
		require.LessOrEqual(t, client.Stats().ReceivedBytes, uint64(len(p.content)))
	}
}

// TestOtherPeerIsAskedAfterDamage has one peer with a damaged copy and one without damage.
func TestOtherPeerIsAskedAfterDamage(t *testing.T) {
	p := newPublished(t)
	dir := t.TempDir()
	damaged := bytes.Clone(p.content)
	damaged[len(damaged)/2] ^= 1
	require.NoError(t, os.WriteFile(filepath.Join(dir, p.m.Files[0].Name), damaged, 0o600))
	client := newClient(t, startPeer(t, serveDir(dir, nil).Handle), startPeer(t, serveDir(p.dir, nil).Handle))
	for range 10 {
		p.fetch(t, client)
	}
	require.Zero(t, p.bucket.files.Load())
}

// fixedSource is a source of one set.
type fixedSource []discovery.Server

func (s fixedSource) Watch(ctx context.Context, update func(discovery.Snapshot)) error {
	update(discovery.Snapshot{Servers: s, Numbers: len(s), Self: -1})
	<-ctx.Done()
	return ctx.Err()
}

// Files come from servers of the zone while one of them has the file.
func TestFilesComeFromTheZone(t *testing.T) {
	p := newPublished(t)
	near, far, empty := serveDir(p.dir, nil), serveDir(p.dir, nil), serveDir(t.TempDir(), nil)
	servers := fixedSource{
		{Number: 0, Address: startPeer(t, near.Handle), Zone: "eu-1a"}, {Number: 1, Address: startPeer(t, far.Handle), Zone: "eu-1b"},
		{Number: 2, Address: startPeer(t, empty.Handle), Zone: "eu-1c"},
	}
	for _, x := range []struct {
		zone string
		from []*peers.Server
	}{{"eu-1a", []*peers.Server{near}}, {"eu-1b", []*peers.Server{far}}, {"eu-1c", []*peers.Server{near, far}}} {
		client := peers.NewClient(servers, &peers.ClientOptions{Pool: boxcarrpc.PoolOptions{Zone: x.zone}})
		sent := func() (bytes int) {
			for _, server := range x.from {
				bytes += int(server.Stats().SentBytes)
			}
			return bytes
		}
		before := sent()
		for range 5 {
			p.fetch(t, client)
		}
		require.Equal(t, before+5*len(p.content), sent(), x.zone)
		require.NoError(t, client.Close())
	}
	require.Zero(t, p.bucket.files.Load())
}

// TestBadPeersAreReplacedByTheBucket has peers that answer in each wrong way.
func TestBadPeersAreReplacedByTheBucket(t *testing.T) {
	p := newPublished(t)
	send := func(messages ...[]byte) boxcarrpc.StreamHandler {
		return func(_ context.Context, _ string, s *boxcarrpc.ServerStream) error {
			for _, m := range messages {
				if err := s.Send(m); err != nil {
					return err
				}
			}
			return nil
		}
	}
	for name, handler := range map[string]boxcarrpc.StreamHandler{
		"busy":               serveDir(p.dir, &peers.ServerOptions{MaxTransfers: -1}).Handle,
		"absent":             serveDir(t.TempDir(), nil).Handle,
		"no streams":         nil,
		"nothing":            send(),
		"empty messages":     send(nil, nil),
		"too short":          send(p.content[:len(p.content)-1]),
		"too long":           send(p.content, p.content),
		"one byte too long":  send(p.content, []byte{0}),
		"another collection": peers.NewServer(func(string) (string, bool) { return "", false }, nil).Handle,
		"fails at the end": func(ctx context.Context, method string, s *boxcarrpc.ServerStream) error {
			_ = s.Send(p.content)
			return errors.New("failed")
		},
	} {
		t.Run(name, func(t *testing.T) {
			before := p.bucket.files.Load()
			p.fetch(t, newClient(t, startPeer(t, handler)))
			require.EqualValues(t, before+1, p.bucket.files.Load())
		})
	}
	t.Run("unreachable", func(t *testing.T) {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		require.NoError(t, listener.Close())
		p.fetch(t, newClient(t, listener.Addr().String()))
	})
}

// TestServerRefusesRequests sends requests that no Client sends.
func TestServerRefusesRequests(t *testing.T) {
	p := newPublished(t)
	server := serveDir(p.dir, nil)
	pool, err := boxcarrpc.NewPool(discovery.Static(startPeer(t, server.Handle)), nil)
	require.NoError(t, err)
	defer pool.Close()
	code := func(ctx context.Context, method string, pairs ...string) boxcarrpc.Code {
		var request boxcarrpc.Metadata
		for i := 0; i < len(pairs); i += 2 {
			request = request.Append(pairs[i], pairs[i+1])
		}
		stream, err := pool.Stream(ctx, method, request)
		require.NoError(t, err)
		defer stream.Close()
		_, err = stream.Receive(nil)
		return boxcarrpc.CodeOf(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	require.NoError(t, os.WriteFile(filepath.Join(filepath.Dir(p.dir), "secret.seg"), []byte("secret"), 0o600))
	for _, file := range []string{"", "..", "../secret.seg", "/etc/passwd", "0000000001.open", "0000000001.seg.bad", "HEAD", "0000000009.seg"} {
		require.Equal(t, boxcarrpc.CodeNotFound, code(ctx, peers.Method, "collection", "jobs", "file", file, "size", "6"), file)
	}
	require.Equal(t, boxcarrpc.CodeUnimplemented, code(ctx, "/other"))
	require.Equal(t, boxcarrpc.CodeInvalidArgument, code(context.Background(), peers.Method), "no deadline")
}

// TestShardsComeFromPeers: a server that holds some shards of a collection gives
// their files, and the others come from the bucket.
func TestShardsComeFromPeers(t *testing.T) {
	dir, layout := t.TempDir(), shard.Layout{Shards: 4, Seed: 1}
	require.NoError(t, shard.Write(vfs.OS, dir, layout))
	for i := range layout.Shards {
		w, err := queue.OpenWriter(layout.Dir(dir, i), nil)
		require.NoError(t, err)
		_, err = w.Append([]byte{byte(i)}, []byte("document"))
		require.NoError(t, err)
		require.NoError(t, w.Close())
	}
	inner, err := bucket.OpenDir(vfs.OS, t.TempDir())
	require.NoError(t, err)
	b := &countingBucket{Bucket: inner}
	p, err := publish.OpenPublisher(t.Context(), b, dir, nil)
	require.NoError(t, err)
	published, err := p.Publish(t.Context())
	require.NoError(t, err)
	require.NoError(t, p.Close())

	held := map[string]string{shard.Name("jobs", 1): layout.Dir(dir, 1), shard.Name("jobs", 3): layout.Dir(dir, 3)}
	client := newClient(t, startPeer(t, peers.NewServer(func(collection string) (string, bool) {
		dir, ok := held[collection]
		return dir, ok
	}, nil).Handle))
	for i := range layout.Shards {
		view, err := published.Manifest.Shard(i)
		require.NoError(t, err)
		before := b.files.Load()
		options := &publish.Options{Source: client.Source(shard.Name("jobs", i))}
		require.NoError(t, publish.NewReplica(b, t.TempDir(), options).Fetch(t.Context(), view))
		require.EqualValues(t, 1-i%2, b.files.Load()-before, "shard %d", i)
	}
}
