package collection_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"docstore/boxcarrpc"
	"docstore/boxcarrpc/discovery"
	"docstore/docservice"
	"docstore/docservice/collection"
	"docstore/queue"
)

func check(err error) {
	if err != nil {
		panic(err)
	}
}

// From a record to the answer for its id.
func Example() {
	dir, err := os.MkdirTemp("", "docservice")
	check(err)
	defer os.RemoveAll(dir)
	queueDir, jobsDir := filepath.Join(dir, "queue"), filepath.Join(dir, "jobs")
	ctx := context.Background()

	// In docstore-updater:
	writer, err := queue.OpenWriter(queueDir, nil)
	check(err)
	defer writer.Close()
	_, err = writer.Append([]byte("4711"), []byte(`{"id":"4711","title":"Lift operator"}`))
	check(err)
	check(writer.Flush())

	// In docserviced, on another machine:
	jobs, err := collection.Open("jobs", queueDir, jobsDir, nil)
	check(err)
	defer jobs.Close()
	check(jobs.WaitReady(ctx))
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	check(err)
	server := boxcarrpc.NewServer(collection.NewService(jobs).Handle, nil)
	go server.Serve(listener)
	defer server.Close()

	// In a front end:
	pool, err := boxcarrpc.NewPool(discovery.Static(listener.Addr().String()), &boxcarrpc.PoolOptions{
		Methods: docservice.IdempotentMethods(),
	})
	check(err)
	defer pool.Close()
	client := docservice.NewClient(pool, "jobs")
	document, err := client.Get(ctx, nil, "4711")
	fmt.Println(string(document), err)
	_, err = client.Get(ctx, nil, "4712")
	fmt.Println(errors.Is(err, docservice.ErrNotFound))
	// All ids with a prefix, page by page:
	page := docservice.ScanOptions{Prefix: []byte("47")}
	for {
		page.After, err = client.Scan(ctx, page, func(id string, document []byte, err error) error {
			fmt.Println(id, len(document), err)
			return nil
		})
		check(err)
		if page.After == nil {
			break
		}
	}
	// Output:
	// {"id":"4711","title":"Lift operator"} <nil>
	// true
	// 4711 37 <nil>
}

// A queue and a collection in one process, without a network.
func ExampleOpen() {
	dir, err := os.MkdirTemp("", "collection")
	check(err)
	defer os.RemoveAll(dir)
	ctx, queueDir := context.Background(), filepath.Join(dir, "queue")
	writer, err := queue.OpenWriter(queueDir, nil)
	check(err)
	defer writer.Close()
	for _, title := range []string{"baker", "nurse", "teacher"} {
		_, err := writer.Append([]byte("job/"+title), fmt.Appendf(nil, `{"title":%q}`, title))
		check(err)
	}
	last, err := writer.Delete([]byte("job/nurse"))
	check(err)
	check(writer.Flush())

	jobs, err := collection.Open("jobs", queueDir, filepath.Join(dir, "index"), nil)
	check(err)
	defer jobs.Close()
	// WaitFor lets the process read its own writes. WaitReady waits until the whole queue is
	// indexed: before that an id without an entry is ErrUnavailable and not ErrNotFound.
	check(jobs.WaitFor(ctx, last))
	check(jobs.WaitReady(ctx))

	document, err := jobs.Get(nil, []byte("job/baker"))
	fmt.Println(string(document), err)
	_, err = jobs.Get(nil, []byte("job/nurse"))
	fmt.Println(errors.Is(err, docservice.ErrNotFound))
	check(jobs.Scan(ctx, docservice.ScanOptions{Prefix: []byte("job/")}, func(id []byte, answer collection.Answer) error {
		fmt.Printf("%s %s\n", id, answer.Document) // both are valid until this function returns
		return answer.Err
	}))
	// Output:
	// {"title":"baker"} <nil>
	// true
	// job/baker {"title":"baker"}
	// job/teacher {"title":"teacher"}
}
