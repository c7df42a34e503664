// Embed uses a queue and a collection in one process, without network and daemon: it
// appends documents, reads them back by id, and lists a prefix.
//
//	go run ./examples/embed
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"docstore/docservice"
	"docstore/docservice/collection"
	"docstore/queue"
)

func main() {
	dir, err := os.MkdirTemp("", "embed")
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if err := run(context.Background(), dir); err != nil {
		log.Print(err)
	}
}

func run(ctx context.Context, dir string) (err error) {
	// The queue holds the documents. Only one process may write to it.
	queueDir := filepath.Join(dir, "queue")
	writer, err := queue.OpenWriter(queueDir, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, writer.Close()) }()
	for _, title := range []string{"baker", "nurse", "teacher"} {
		if _, err := writer.Append([]byte("job/"+title), fmt.Appendf(nil, `{"title":%q}`, title)); err != nil {
			return err
		}
	}
	last, err := writer.Delete([]byte("job/nurse"))
	if err != nil {
		return err
	}
	// Flush makes the entries durable and visible to readers.
	if err := writer.Flush(); err != nil {
		return err
	}

	// The collection indexes the queue in the background. If its directory is deleted, the
	// index is rebuilt from the queue.
	jobs, err := collection.Open("jobs", queueDir, filepath.Join(dir, "index"), nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, jobs.Close()) }()
	// WaitFor lets the process read its own writes. WaitReady waits until the whole queue is
	// indexed: before that an id without an entry is ErrUnavailable and not ErrNotFound.
	if err := errors.Join(jobs.WaitFor(ctx, last), jobs.WaitReady(ctx)); err != nil {
		return err
	}

	document, err := jobs.Get(nil, []byte("job/baker"))
	if err != nil {
		return err
	}
	fmt.Printf("get: %s\n", document)
	if _, err := jobs.Get(nil, []byte("job/nurse")); errors.Is(err, docservice.ErrNotFound) {
		fmt.Println("get: job/nurse was deleted")
	}
	return jobs.Scan(ctx, docservice.ScanOptions{Prefix: []byte("job/")}, func(id []byte, answer collection.Answer) error {
		fmt.Printf("scan: %s %s\n", id, answer.Document) // both are valid until this function returns
		return answer.Err
	})
}
