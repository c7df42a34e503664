package main

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"docstore/boxcarrpc"
	"docstore/boxcarrpc/boxcargrpc"
	"docstore/docservice/docservicegrpc"
	"docstore/docservice/docservicepb"
)

// grpcClient returns the client that protoc-gen-go-grpc generated, over gRPC. The daemon decodes.
func (s *docstoreStore) grpcClient(int) (client, error) {
	conn, err := grpc.NewClient(s.grpc, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(boxcarrpc.MaxResponseBytes)))
	if err != nil {
		return nil, err
	}
	return &stubClient{docservicegrpc.NewDocumentsClient(conn), conn.Close}, nil
}

// stubClient is the same over Boxcar.
func (s *docstoreStore) stubClient(callers int) (client, error) {
	c, err := s.boxcarClient(callers)
	if err != nil {
		return nil, err
	}
	conn, err := boxcargrpc.NewClient(c.pool, nil)
	if err != nil {
		return nil, errors.Join(err, c.close())
	}
	return &stubClient{docservicegrpc.NewDocumentsClient(conn), func() error { return errors.Join(conn.Close(), c.close()) }}, nil
}

// stubClient is a generated client, and what closes its connection.
type stubClient struct {
	docservicegrpc.DocumentsClient
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
