package docservice

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"docstore/boxcarrpc"
	"docstore/boxcarrpc/boxcargrpc"
	"docstore/docservice/docservicepb"
)

func TestDocuments(t *testing.T) {
	f := newMemFixture(t)
	f.put("1", "one")
	d := Documents(NewService(f.ready()).Handle)
	found, err := d.Get(t.Context(), &docservicepb.GetRequest{Collection: "jobs", Id: []byte("1")})
	require.NoError(t, err)
	assert.Equal(t, "one", string(found.GetDocument()))
	_, err = d.Get(t.Context(), &docservicepb.GetRequest{Collection: "jobs"})
	assert.Equal(t, codes.InvalidArgument, status.Code(err))
	_, err = d.Stats(t.Context(), &docservicepb.StatsRequest{Collection: "nope"})
	assert.Equal(t, codes.NotFound, status.Code(err))
}

// The mark "not processed" survives the conversion to gRPC's types.
func TestDocumentsUnavailable(t *testing.T) {
	d := Documents(func(context.Context, string, []byte, []byte) ([]byte, error) { return nil, callError(ErrUnavailable) })
	services := boxcargrpc.NewServices(nil)
	docservicepb.RegisterDocumentsServer(services, d)
	_, err := services.Handle(t.Context(), MethodGet, nil, nil)
	var failed *boxcarrpc.Error
	require.ErrorAs(t, err, &failed)
	assert.Equal(t, boxcarrpc.CodeUnavailable, failed.Code)
	assert.True(t, boxcarrpc.IsNotProcessed(err))
	assert.Equal(t, ErrUnavailable.Error(), failed.Message)
	_, err = d.Get(t.Context(), new(docservicepb.GetRequest))
	assert.Equal(t, codes.Unavailable, status.Code(err), "on a server of grpc-go")
}
