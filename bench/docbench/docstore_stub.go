package main

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"docstore/boxcarrpc"
	"docstore/boxcarrpc/boxcargrpc"
	"docstore/boxcarrpc/discovery"
	"docstore/docservice"
	"docstore/docservice/docservicepb"
)

// docstoreStub is ours asked by the stub that protoc-gen-go-grpc has generated, over
// Boxcar or at the daemon's gRPC door. The daemon decodes.
type docstoreStub struct {
	docstoreStore
	overGRPC bool
}

func (s *docstoreStub) client(callers int) (client, error) {
	if s.overGRPC {
		conn, err := grpc.NewClient(s.grpc, grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(boxcarrpc.MaxResponseBytes)))
		if err != nil {
			return nil, err
		}
		return &stubClient{docservicepb.NewDocumentsClient(conn), conn.Close}, nil
	}
	pool, err := boxcarrpc.NewPool(discovery.Static(s.boxcar), &boxcarrpc.PoolOptions{Size: callers, Methods: docservice.IdempotentMethods()})
	if err != nil {
		return nil, err
	}
	conn, err := boxcargrpc.NewClient(pool, nil)
	if err != nil {
		return nil, errors.Join(err, pool.Close())
	}
	return &stubClient{docservicepb.NewDocumentsClient(conn), func() error { return errors.Join(conn.Close(), pool.Close()) }}, nil
}

// stubClient is a generated client, and what closes its connection.
type stubClient struct {
	docservicepb.DocumentsClient
	closeAll func() error
}

func (c *stubClient) close() error { return c.closeAll() }

func (c *stubClient) get(ctx context.Context, dst []byte, id string) ([]byte, error) {
	answer, err := c.Get(ctx, &docservicepb.GetRequest{Collection: collection, Id: []byte(id)})
	if err == nil && answer.GetStatus() != docservicepb.Status_STATUS_FOUND {
		err = fmt.Errorf("%s: %v", id, answer.GetStatus())
	}
	return append(dst, answer.GetDocument()...), err
}

func (c *stubClient) getMany(ctx context.Context, ids []string, fn func(i int, document []byte) error) error {
	request := &docservicepb.BatchGetRequest{Collection: collection}
	for _, id := range ids {
		request.Ids = append(request.Ids, []byte(id))
	}
	response, err := c.BatchGet(ctx, request)
	if err != nil {
		return err
	}
	for i, answer := range response.GetAnswers() {
		if answer.GetStatus() != docservicepb.Status_STATUS_FOUND {
			return fmt.Errorf("%s: %v", ids[i], answer.GetStatus())
		}
		if err := fn(i, answer.GetDocument()); err != nil {
			return err
		}
	}
	return nil
}
