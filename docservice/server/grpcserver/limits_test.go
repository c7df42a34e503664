package grpcserver

import (
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"docstore/boxcarrpc"
	"docstore/boxcarrpc/budget"
	"docstore/boxcarrpc/discovery"
	"docstore/docservice"
	"docstore/docservice/docservicegrpc"
	"docstore/docservice/docservicepb"
	"docstore/docservice/server"
	"docstore/internal/servertest"
)

// The flags reach the server, and limit the Boxcar and the gRPC listener together.
func TestLimitsOfADaemon(t *testing.T) {
	queueDir := t.TempDir()
	servertest.Fill(t, queueDir, "a", `{"id":"a"}`)
	o := testOptions(t, queueDir)
	o.Limits = server.Limits{Conns: 1, Slots: 3, InFlight: 2, Rate: 1e-3, Burst: 5, ClientRate: 1e-3, ClientBurst: 3}
	d, conn := startGRPCDaemon(t, o)
	waitReady(t, d)

	pool, err := boxcarrpc.NewPool(discovery.Static(d.BoxcarAddress()), &boxcarrpc.PoolOptions{Size: 4, MaxRetries: -1})
	require.NoError(t, err)
	defer pool.Close()
	boxcar := docservice.NewClient(pool, "jobs")
	overGRPC := func() codes.Code {
		_, err := docservicegrpc.NewDocumentsClient(conn).Get(servertest.Shortly(t), &docservicepb.GetRequest{Collection: "jobs", Id: []byte("a")})
		return status.Code(err)
	}
	_, err = boxcar.Get(servertest.Shortly(t), nil, "a")
	require.NoError(t, err)
	require.Equal(t, codes.OK, overGRPC())
	_, err = boxcar.Get(servertest.Shortly(t), nil, "a")
	require.NoError(t, err)
	require.Equal(t, codes.ResourceExhausted, overGRPC(), "the fourth of one address")
	_, err = boxcar.Get(servertest.Shortly(t), nil, "a")
	require.Equal(t, boxcarrpc.CodeResourceExhausted, boxcarrpc.CodeOf(err))
	require.Equal(t, uint64(2), d.Boxcar().Stats().RefusedBy["client_rate"])
	servertest.Until(servertest.Shortly(t), func() bool { return d.Boxcar().Stats().Denied > 0 })
	require.Equal(t, 3, d.Boxcar().Stats().Slots)

	health, err := grpc_health_v1.NewHealthClient(conn).Check(servertest.Shortly(t), nil)
	require.NoError(t, err, "Check is never limited")
	require.Equal(t, grpc_health_v1.HealthCheckResponse_SERVING, health.GetStatus())

	var leaves []func()
	for _, name := range []string{"b", "c"} {
		leave, err := d.Boxcar().Admit(budget.ClientNamed(name), false)
		require.NoError(t, err)
		leaves = append(leaves, leave)
	}
	require.Equal(t, codes.ResourceExhausted, overGRPC(), "two are in flight")
	require.Equal(t, uint64(1), d.Boxcar().Stats().RefusedBy["in_flight"])
	for _, leave := range leaves {
		leave()
	}
	_, err = d.Boxcar().Admit(budget.ClientNamed("d"), false)
	require.ErrorContains(t, err, "too many requests a second", "the sixth in all")
	require.Equal(t, uint64(1), d.Boxcar().Stats().RefusedBy["rate"])

	other, err := boxcarrpc.NewPool(discovery.Static(d.BoxcarAddress()), nil)
	require.NoError(t, err)
	defer other.Close()
	servertest.Until(servertest.Shortly(t), func() bool { return d.Boxcar().Stats().Accepted > 1 })
	require.Equal(t, 1, d.Boxcar().Stats().Connections)
}

// A call over gRPC with the priority of background tasks is refused while others are still
// admitted.
func TestBatchOverGRPCIsRefusedFirst(t *testing.T) {
	queueDir := t.TempDir()
	servertest.Fill(t, queueDir, "a", `{"id":"a"}`)
	o := testOptions(t, queueDir)
	o.Limits.InFlight = 4
	d, conn := startGRPCDaemon(t, o)
	waitReady(t, d)
	ask := func(priority string) codes.Code {
		ctx := metadata.AppendToOutgoingContext(servertest.Shortly(t), "priority", priority)
		_, err := docservicegrpc.NewDocumentsClient(conn).Get(ctx, &docservicepb.GetRequest{Collection: "jobs", Id: []byte("a")})
		return status.Code(err)
	}
	for range 3 {
		require.Equal(t, codes.OK, ask("u=7"))
		leave, err := d.Boxcar().Admit((&boxcarrpc.Peer{Identity: boxcarrpc.Identity{Kind: boxcarrpc.TokenIdentity, Name: "another client"}}).Client(), false)
		require.NoError(t, err)
		defer leave()
	}
	require.Equal(t, codes.ResourceExhausted, ask("u=7"))
	require.Equal(t, codes.OK, ask("u=3"))
	require.EqualValues(t, 1, d.Boxcar().Stats().RefusedBatchBy["in_flight"])
}
