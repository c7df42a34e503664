// Grpcstubs runs a gRPC service over Boxcar: stubs that protoc-gen-go-grpc has
// generated, an implementation that knows gRPC only, and an interceptor. What makes
// it Boxcar is in serve and connect.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"strings"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"docstore/boxcarrpc"
	"docstore/boxcarrpc/boxcargrpc"
	"docstore/boxcarrpc/discovery"
	"docstore/examples/grpcstubs/jobspb"
)

func main() {
	if err := run(context.Background()); err != nil {
		log.Fatal(err)
	}
}

// run starts two servers, connects to both with one pool and makes a call of each
// kind.
func run(ctx context.Context) (err error) {
	var serving sync.WaitGroup
	defer serving.Wait()
	var addresses []string
	for range 2 {
		server, listener, err := newServer()
		if err != nil {
			return err
		}
		serving.Go(func() {
			if err := server.Serve(listener); !errors.Is(err, boxcarrpc.ErrServerClosed) {
				log.Print(err)
			}
		})
		defer func() { err = errors.Join(err, server.Close()) }()
		addresses = append(addresses, listener.Addr().String())
	}

	// The client: a pool of slots on the servers, and a connection for stubs over it.
	pool, err := boxcarrpc.NewPool(discovery.Static(addresses...), &boxcarrpc.PoolOptions{
		Size:    8,
		Methods: boxcargrpc.Methods(jobspb.File_examples_grpcstubs_jobspb_jobs_proto),
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, pool.Close()) }()
	conn, err := boxcargrpc.NewClient(pool, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	client := jobspb.NewJobsClient(conn)
	for _, show := range []func(context.Context, jobspb.JobsClient) error{find, watch, count, suggest} {
		if err := show(ctx, client); err != nil {
			return err
		}
	}
	return nil
}

// newServer makes a server of the service.
func newServer() (*boxcarrpc.Server, net.Listener, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	services := boxcargrpc.NewServices(&boxcargrpc.ServicesOptions{
		UnaryInterceptors: []grpc.UnaryServerInterceptor{requireUser},
	})
	jobspb.RegisterJobsServer(services, jobs{})
	return boxcarrpc.NewServer(services.Handle, &boxcarrpc.ServerOptions{StreamHandler: services.HandleStream}), listener, nil
}

// requireUser is an interceptor as for any gRPC server.
func requireUser(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	if len(metadata.ValueFromIncomingContext(ctx, "user")) == 0 {
		return nil, status.Error(codes.Unauthenticated, "who are you?")
	}
	return handler(ctx, request)
}

func find(ctx context.Context, client jobspb.JobsClient) error {
	_, err := client.Find(ctx, &jobspb.FindRequest{Word: "go"})
	fmt.Println("Find without a user:", status.Code(err), status.Convert(err).Message())
	var header metadata.MD
	response, err := client.Find(metadata.AppendToOutgoingContext(ctx, "user", "ann"), &jobspb.FindRequest{Word: "go"}, grpc.Header(&header))
	if err != nil {
		return err
	}
	fmt.Printf("Find: %q, header %q\n", response.GetTitles(), header.Get("searched"))
	return nil
}

func watch(ctx context.Context, client jobspb.JobsClient) error {
	stream, err := client.Watch(ctx, &jobspb.FindRequest{Word: "baker"})
	if err != nil {
		return err
	}
	for {
		title, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		fmt.Println("Watch:", title.GetText())
	}
}

func count(ctx context.Context, client jobspb.JobsClient) error {
	stream, err := client.Count(ctx)
	if err != nil {
		return err
	}
	for _, title := range titles {
		if err := stream.Send(&jobspb.Title{Text: title}); err != nil {
			return err
		}
	}
	response, err := stream.CloseAndRecv()
	if err != nil {
		return err
	}
	fmt.Println("Count:", response.GetTitles())
	return nil
}

func suggest(ctx context.Context, client jobspb.JobsClient) error {
	stream, err := client.Suggest(ctx)
	if err != nil {
		return err
	}
	for _, prefix := range []string{"go", "n"} {
		if err := stream.Send(&jobspb.Prefix{Text: prefix}); err != nil {
			return err
		}
		title, err := stream.Recv()
		if err != nil {
			return err
		}
		fmt.Printf("Suggest: %s -> %s\n", prefix, title.GetText())
	}
	return stream.CloseSend()
}

var titles = []string{"baker", "baker, nights", "go developer", "nurse"}

// jobs is the service. Nothing in it is about Boxcar.
type jobs struct {
	jobspb.UnimplementedJobsServer
}

func (jobs) Find(ctx context.Context, request *jobspb.FindRequest) (*jobspb.FindResponse, error) {
	if err := grpc.SetHeader(ctx, metadata.Pairs("searched", fmt.Sprint(len(titles)))); err != nil {
		return nil, err
	}
	response := new(jobspb.FindResponse)
	for _, title := range titles {
		if strings.Contains(title, request.GetWord()) {
			response.Titles = append(response.Titles, title)
		}
	}
	return response, nil
}

func (jobs) Watch(request *jobspb.FindRequest, stream grpc.ServerStreamingServer[jobspb.Title]) error {
	for _, title := range titles {
		if strings.Contains(title, request.GetWord()) {
			if err := stream.Send(&jobspb.Title{Text: title}); err != nil {
				return err
			}
		}
	}
	return nil
}

func (jobs) Count(stream grpc.ClientStreamingServer[jobspb.Title, jobspb.CountResponse]) error {
	var response jobspb.CountResponse
	for {
		_, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return stream.SendAndClose(&response)
		}
		if err != nil {
			return err
		}
		response.Titles++
	}
}

func (jobs) Suggest(stream grpc.BidiStreamingServer[jobspb.Prefix, jobspb.Title]) error {
	for {
		prefix, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		suggestion := new(jobspb.Title)
		for _, title := range titles {
			if strings.HasPrefix(title, prefix.GetText()) {
				suggestion.Text = title
				break
			}
		}
		if err := stream.Send(suggestion); err != nil {
			return err
		}
	}
}
