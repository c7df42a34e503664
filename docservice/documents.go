package docservice

import (
	"context"

	"google.golang.org/protobuf/proto"

	"docstore/boxcarrpc"
	"docstore/boxcarrpc/boxcargrpc"
	"docstore/docservice/docservicepb"
)

// Documents makes the service that generated code registers, with grpc-go's
// server or with boxcargrpc.Services, of a handler: Service.Handle, or one around
// it. Its errors are statuses of gRPC.
func Documents(handler boxcarrpc.Handler) docservicepb.DocumentsServer {
	return documents{handle: handler}
}

// documents goes through the bytes that the handler takes and gives. That costs a
// request and a response encoded and decoded once more, about a microsecond for a
// document of a kilobyte beside the tens that gRPC takes for the call.
type documents struct {
	docservicepb.UnimplementedDocumentsServer
	handle boxcarrpc.Handler
}

func (d documents) Get(ctx context.Context, request *docservicepb.GetRequest) (*docservicepb.GetResponse, error) {
	response := new(docservicepb.GetResponse)
	return response, d.call(ctx, MethodGet, request, response)
}

func (d documents) BatchGet(ctx context.Context, request *docservicepb.BatchGetRequest) (*docservicepb.BatchGetResponse, error) {
	response := new(docservicepb.BatchGetResponse)
	return response, d.call(ctx, MethodBatchGet, request, response)
}

func (d documents) Dictionary(ctx context.Context, request *docservicepb.DictionaryRequest) (*docservicepb.DictionaryResponse, error) {
	response := new(docservicepb.DictionaryResponse)
	return response, d.call(ctx, MethodDictionary, request, response)
}

func (d documents) Scan(ctx context.Context, request *docservicepb.ScanRequest) (*docservicepb.ScanResponse, error) {
	response := new(docservicepb.ScanResponse)
	return response, d.call(ctx, MethodScan, request, response)
}

func (d documents) Stats(ctx context.Context, request *docservicepb.StatsRequest) (*docservicepb.StatsResponse, error) {
	response := new(docservicepb.StatsResponse)
	return response, d.call(ctx, MethodStats, request, response)
}

// call has the handler answer a request.
func (d documents) call(ctx context.Context, method string, request, response proto.Message) error {
	body, err := proto.Marshal(request)
	if err != nil {
		return err
	}
	if body, err = d.handle(ctx, method, body, nil); err != nil {
		return boxcargrpc.StatusError(err)
	}
	return proto.Unmarshal(body, response)
}
