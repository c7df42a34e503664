package maintain_test

import (
	"context"
	"fmt"
	"log"

	"docstore/internal/vfs"
	"docstore/queue"
	"docstore/queue/maintain"
)

func ExampleCheck() {
	fsys := vfs.NewMem()
	w, err := queue.OpenWriter("/jobs", &queue.WriterOptions{FS: fsys})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := w.Append([]byte("job-1"), []byte("gardener wanted")); err != nil {
		log.Fatal(err)
	}
	if err := w.Close(); err != nil {
		log.Fatal(err)
	}

	report, err := maintain.Check(context.Background(), "/jobs", &maintain.CheckOptions{FS: fsys})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(report.Segments, report.Documents, len(report.Damage))
	// Output: 1 1 0
}
