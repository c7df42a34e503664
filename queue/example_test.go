package queue_test

import (
	"context"
	"errors"
	"fmt"

	"docstore/internal/vfs"
	"docstore/queue"
)

// must returns value and panics if there is an error.
func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func done(err error) {
	if err != nil {
		panic(err)
	}
}

func Example() {
	fsys := vfs.NewMem() // leave FS out to write to disk
	w := must(queue.OpenWriter("/jobs", &queue.WriterOptions{FS: fsys}))
	defer w.Close()
	address := must(w.Append([]byte("job-1"), []byte("gardener wanted")))
	done(w.Flush())

	r := must(queue.OpenReader("/jobs", &queue.ReaderOptions{FS: fsys}))
	defer r.Close()
	document := must(r.Document(nil, address))
	fmt.Printf("%v: %s\n", address, document)
	// Output: 1/128/0: gardener wanted
}

// An index keeps the newest address of each id, and commits with the position when no
// entry is pending.
func ExampleReader_Tail() {
	fsys := vfs.NewMem()
	w := must(queue.OpenWriter("/jobs", &queue.WriterOptions{FS: fsys, Codec: "none"}))
	defer w.Close()
	must(w.Append([]byte("job-1"), []byte("gardener wanted")))
	must(w.Append([]byte("job-2"), []byte("welder wanted")))
	must(w.Delete([]byte("job-1")))
	done(w.Flush())

	r := must(queue.OpenReader("/jobs", &queue.ReaderOptions{FS: fsys}))
	defer r.Close()
	index := map[string]queue.Address{}
	enough := errors.New("enough")
	err := r.Tail(context.Background(), queue.Position{}, func(e queue.Entry) error {
		if e.Deleted {
			delete(index, string(e.ID))
		} else {
			index[string(e.ID)] = e.Address
		}
		if !e.More {
			fmt.Println("commit up to", e.Next.Next)
			return enough
		}
		return nil
	})
	fmt.Println(err, index)
	// Output:
	// commit up to 1/251/0
	// enough map[job-2:1/128/1]
}
