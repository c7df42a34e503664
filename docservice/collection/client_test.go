package collection

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"docstore/boxcarrpc"
	"docstore/boxcarrpc/discovery"
	"docstore/docservice"
	"docstore/queue"
)

// serve serves the collections on a new port and returns its address.
func serve(t testing.TB, collections ...*Collection) string {
	t.Helper()
	service := NewService(collections...)
	return serveHandler(t, service.Handle, nil)
}

func serveHandler(t testing.TB, handler boxcarrpc.Handler, opts *boxcarrpc.ServerOptions) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	if opts == nil {
		opts = &boxcarrpc.ServerOptions{}
	}
	// Many tests share the processors.
	opts.HandshakeTimeout, opts.WriteTimeout = patience, patience
	server := boxcarrpc.NewServer(handler, opts)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Close()
		assert.ErrorIs(t, <-served, boxcarrpc.ErrServerClosed)
	})
	return listener.Addr().String()
}

// dial returns a client of the collection "jobs" at the servers.
func dial(t testing.TB, addresses ...string) *docservice.Client {
	t.Helper()
	return docservice.NewClient(dialPool(t, addresses...), "jobs")
}

func dialPool(t testing.TB, addresses ...string) *boxcarrpc.Pool {
	t.Helper()
	pool, err := boxcarrpc.NewPool(discovery.Static(addresses...), &boxcarrpc.PoolOptions{
		Size: 8, Methods: docservice.IdempotentMethods(),
		RetryRatio: 3, // some servers here refuse most calls
		// A timeout on the only connection would cost the pool all its slots and fail the
		// call.
		DialTimeout: patience, SilenceTimeout: patience,
	})
	require.NoError(t, err)
	t.Cleanup(func() { pool.Close() })
	require.NoError(t, pool.WaitReady(soon(t)))
	return pool
}

func TestClient(t *testing.T) {
	f := newMemFixture(t)
	f.putMany("a", 300)
	f.put("empty", "")
	pool := dialPool(t, serve(t, f.ready()))
	client := docservice.NewClient(pool, "jobs")
	ctx := soon(t)

	got, err := client.Get(ctx, []byte("before "), "a-7")
	require.NoError(t, err)
	assert.Equal(t, "before "+documentOf("a-7"), string(got))
	got, err = client.Get(ctx, []byte("before "), "none")
	require.ErrorIs(t, err, docservice.ErrNotFound)
	assert.Equal(t, "before ", string(got))
	got, err = client.Get(ctx, nil, "empty")
	require.NoError(t, err)
	assert.Empty(t, got)
	_, err = client.Get(ctx, nil, "")
	require.ErrorIs(t, err, docservice.ErrBadID)
	_, err = client.Get(ctx, nil, strings.Repeat("x", queue.MaxIDBytes+1))
	require.ErrorIs(t, err, docservice.ErrBadID)

	stats, err := client.Stats(ctx)
	require.NoError(t, err)
	assert.Equal(t, "jobs", stats.GetName())
	assert.Equal(t, uint64(301), stats.GetSegmentDocuments())

	other := docservice.NewClient(pool, "nope")
	_, err = other.Get(ctx, nil, "a-7")
	require.ErrorIs(t, err, docservice.ErrNoCollection)
	require.NotErrorIs(t, err, docservice.ErrNotFound)
	_, err = other.Stats(ctx)
	require.ErrorIs(t, err, docservice.ErrNoCollection)
	err = other.GetMany(ctx, []string{"a-7"}, func(int, []byte, error) error { return nil })
	require.ErrorIs(t, err, docservice.ErrNoCollection)
}

func TestClientGetMany(t *testing.T) {
	f := newMemFixture(t)
	f.putMany("a", 500)
	client := dial(t, serve(t, f.ready()))
	ctx := soon(t)

	ids := []string{"none", "", strings.Repeat("x", queue.MaxIDBytes+1), "a-1", "a-1"}
	for i := range docservice.MaxBatchIDs { // more than one batch
		ids = append(ids, fmt.Sprintf("a-%d", (i*7)%500))
	}
	next := 0
	err := client.GetMany(ctx, ids, func(i int, document []byte, err error) error {
		require.Equal(t, next, i, "in the order asked")
		next++
		switch i {
		case 0:
			require.ErrorIs(t, err, docservice.ErrNotFound)
		case 1, 2:
			require.ErrorIs(t, err, docservice.ErrBadID)
		default:
			require.NoError(t, err)
			require.Equal(t, documentOf(ids[i]), string(document))
		}
		return nil
	})
	require.NoError(t, err)
	assert.Equal(t, len(ids), next)

	require.NoError(t, client.GetMany(ctx, nil, nil))
	enough := errors.New("enough")
	err = client.GetMany(ctx, ids, func(i int, _ []byte, _ error) error {
		if i == 3 {
			return enough
		}
		return nil
	})
	require.ErrorIs(t, err, enough)
}

// Documents that exceed one response arrive in several, in order, for any sizes.
func TestClientGetManyBeyondTheCap(t *testing.T) {
	f := newMemFixture(t)
	sizes := []int{1 << 20, queue.MaxDocumentBytes, 3, queue.MaxDocumentBytes, queue.MaxDocumentBytes - 1, 0, 5 << 20}
	var ids []string
	for i, size := range sizes {
		ids = append(ids, fmt.Sprint(i))
		_, err := f.queueWriter().Append([]byte(ids[i]), bytes.Repeat([]byte{byte(i)}, size))
		require.NoError(t, err)
	}
	require.NoError(t, f.writer.Flush())
	client := dial(t, serve(t, f.ready()))
	next := 0
	err := client.GetMany(soon(t), ids, func(i int, document []byte, err error) error {
		require.NoError(t, err)
		require.Equal(t, next, i)
		next++
		require.Len(t, document, sizes[i])
		require.Equal(t, sizes[i], bytes.Count(document, []byte{byte(i)}))
		return nil
	})
	require.NoError(t, err)
	assert.Equal(t, len(ids), next)
}

// damagedCopies starts two servers of the same queue. Each has a document that the other
// lacks, and both lack a third.
func damagedCopies(t *testing.T) (addresses []string) {
	f, path, good := sealedFixture(t)
	firstPath, first := f.segment(1)
	for _, lacking := range []string{"second-10", "second-20"} {
		replica := newMemFixture(t)
		require.NoError(t, replica.fs.MkdirAll(replica.queueDir))
		damaged := flipped(t, flipped(t, good, documentOf(lacking)), documentOf("second-30"))
		replace(t, replica.fs, firstPath, first) // the same path on another machine
		replace(t, replica.fs, path, damaged)
		addresses = append(addresses, serve(t, replica.ready()))
	}
	return addresses
}

func TestClientAsksTheOtherServer(t *testing.T) {
	pool := dialPool(t, damagedCopies(t)...)
	client := docservice.NewClient(pool, "jobs")
	ctx := soon(t)
	for pool.Stats().Transports < 2 { // until the pool is connected to both
		_, err := client.Get(ctx, nil, "first-1")
		require.NoError(t, err)
	}
	for round := range 5 {
		for _, id := range []string{"second-10", "second-20", "first-1"} {
			got, err := client.Get(ctx, nil, id)
			require.NoError(t, err, "round %d: %s", round, id)
			require.Equal(t, documentOf(id), string(got))
		}
		_, err := client.Get(ctx, nil, "second-30")
		require.ErrorIs(t, err, docservice.ErrUnavailable)

		ids := []string{"second-30", "second-10", "first-1", "none", "second-20", "second-30", "second-40"}
		err = client.GetMany(ctx, ids, func(i int, document []byte, err error) error {
			switch ids[i] {
			case "second-30":
				require.ErrorIs(t, err, docservice.ErrUnavailable)
			case "none":
				require.ErrorIs(t, err, docservice.ErrNotFound)
			default:
				require.NoError(t, err, "round %d: %s", round, ids[i])
				require.Equal(t, documentOf(ids[i]), string(document))
			}
			return nil
		})
		require.NoError(t, err)
	}
}

func TestClientWithoutServer(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := listener.Addr().String()
	require.NoError(t, listener.Close())
	pool, err := boxcarrpc.NewPool(discovery.Static(address), nil)
	require.NoError(t, err)
	t.Cleanup(func() { pool.Close() })
	client := docservice.NewClient(pool, "jobs")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = client.Get(ctx, nil, "1")
	require.Error(t, err)
	require.NotErrorIs(t, err, docservice.ErrNotFound)
	require.NotErrorIs(t, err, docservice.ErrUnavailable, "nothing is known of the document")
	err = client.GetMany(ctx, []string{"1"}, func(int, []byte, error) error {
		require.Fail(t, "nothing is known of any document")
		return nil
	})
	require.Error(t, err)
}
