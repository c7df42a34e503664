package boxcarrpc_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"strings"

	"docstore/boxcarrpc"
	"docstore/boxcarrpc/discovery"
)

// A server that returns the request in upper case, and its client.
func Example() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	server := boxcarrpc.NewServer(func(_ context.Context, method string, request, dst []byte) ([]byte, error) {
		if method != "/example.Text/Upper" {
			return dst, &boxcarrpc.Error{Code: boxcarrpc.CodeUnimplemented, Message: method}
		}
		return append(dst, strings.ToUpper(string(request))...), nil
	}, nil)
	go func() {
		if err := server.Serve(listener); !errors.Is(err, boxcarrpc.ErrServerClosed) {
			log.Print(err)
		}
	}()
	defer server.Close()

	pool, err := boxcarrpc.NewPool(discovery.Static(listener.Addr().String()), nil)
	if err != nil {
		log.Print(err)
		return
	}
	defer pool.Close()

	ctx := context.Background()
	response, err := pool.Call(ctx, "/example.Text/Upper", []byte("lowest slot first"), nil)
	fmt.Println(string(response), err)

	_, err = pool.Call(ctx, "/example.Text/Lower", nil, nil)
	fmt.Println(boxcarrpc.CodeOf(err), "-", err)
	// Output:
	// LOWEST SLOT FIRST <nil>
	// unimplemented - boxcarrpc: unimplemented: /example.Text/Lower
}
