package stored_test

import (
	"context"
	"fmt"

	"docstore/internal/vfs"
	"docstore/queue"
	"docstore/queue/codec"
	"docstore/queue/stored"
)

// A process without segments decodes a document in its stored form. Here the dictionaries
// come from the queue itself; elsewhere they come over the network.
func ExampleDecoders() {
	fsys := vfs.NewMem()
	w := must(queue.OpenWriter("/jobs", &queue.WriterOptions{FS: fsys}))
	defer w.Close()
	id := []byte("job-1")
	address := must(w.Append(id, []byte("gardener wanted, gardener wanted, gardener wanted")))
	done(w.Flush())
	r := must(queue.OpenReader("/jobs", &queue.ReaderOptions{FS: fsys}))
	defer r.Close()

	form, asStored, err := r.StoredFor(nil, queue.Wanted{ID: id, Address: address}, codec.Built())
	done(err)
	fmt.Println(asStored)

	decoders := stored.NewDecoders(stored.NewDecoderCache(16<<20), func(_ context.Context, hash codec.DictionaryHash) ([]byte, error) {
		return r.Dictionary(nil, hash)
	})
	document := must(decoders.Decode(context.Background(), nil, must(stored.Parse(form, id))))
	fmt.Println(string(document))
	// Output:
	// true
	// gardener wanted, gardener wanted, gardener wanted
}

func must[T any](v T, err error) T {
	done(err)
	return v
}

func done(err error) {
	if err != nil {
		panic(err)
	}
}
