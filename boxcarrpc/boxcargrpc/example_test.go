package boxcargrpc_test

import (
	"context"
	"fmt"
	"net"
	"time"

	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"

	"docstore/boxcarrpc"
	"docstore/boxcarrpc/boxcargrpc"
	"docstore/boxcarrpc/discovery"
)

// grpc-go's health service and its generated client over Boxcar.
func Example() {
	services := boxcargrpc.NewServices(nil)
	grpc_health_v1.RegisterHealthServer(services, health.NewServer())
	server := boxcarrpc.NewServer(services.Handle, &boxcarrpc.ServerOptions{StreamHandler: services.HandleStream})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		return
	}
	ended := make(chan error)
	go func() { ended <- server.Serve(listener) }()
	defer func() { <-ended }()
	defer server.Close()

	pool, err := boxcarrpc.NewPool(discovery.Static(listener.Addr().String()), nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer pool.Close()
	conn, err := boxcargrpc.NewClient(pool, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	response, err := grpc_health_v1.NewHealthClient(conn).Check(ctx, &grpc_health_v1.HealthCheckRequest{})
	fmt.Println(response.GetStatus(), err)
	// Output: SERVING <nil>
}
