package docservicegrpc

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"docstore/boxcarrpc"
	"docstore/boxcarrpc/boxcargrpc"
	"docstore/docservice"
	"docstore/docservice/collection"
	"docstore/docservice/docservicepb"
	"docstore/internal/vfs"
	"docstore/queue"
)

func TestDocuments(t *testing.T) {
	files := vfs.NewMem()
	writer, err := queue.OpenWriter("/queue", &queue.WriterOptions{FS: files})
	require.NoError(t, err)
	defer writer.Close()
	_, err = writer.Append([]byte("1"), []byte("one"))
	require.NoError(t, err)
	require.NoError(t, writer.Flush())
	c, err := collection.Open("jobs", "/queue", "/data", &collection.Options{FS: files})
	require.NoError(t, err)
	defer c.Close()
	require.NoError(t, c.WaitReady(t.Context()))
	d := Documents(collection.NewService(c).Handle)
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
	message := docservice.ErrUnavailable.Error()
	d := Documents(func(context.Context, string, []byte, []byte) ([]byte, error) {
		return nil, boxcarrpc.NotProcessed(&boxcarrpc.Error{Code: boxcarrpc.CodeUnavailable, Message: message})
	})
	services := boxcargrpc.NewServices(nil)
	RegisterDocumentsServer(services, d)
	_, err := services.Handle(t.Context(), docservice.MethodGet, nil, nil)
	var failed *boxcarrpc.Error
	require.ErrorAs(t, err, &failed)
	assert.Equal(t, boxcarrpc.CodeUnavailable, failed.Code)
	assert.True(t, boxcarrpc.IsNotProcessed(err))
	assert.Equal(t, message, failed.Message)
	_, err = d.Get(t.Context(), new(docservicepb.GetRequest))
	assert.Equal(t, codes.Unavailable, status.Code(err), "on a server of grpc-go")
}

// Package docservice lists the idempotent methods; docservice.proto declares them.
func TestIdempotentMethods(t *testing.T) {
	assert.Equal(t, boxcargrpc.Methods(docservicepb.File_docservice_docservicepb_docservice_proto), docservice.IdempotentMethods())
}
