package wal_test

import (
	"fmt"
	"log"

	"docstore/internal/vfs"
	"docstore/wal"
)

func Example() {
	opts := &wal.Options{FS: vfs.NewMem(), Capacity: 1 << 20}
	w, err := wal.Create("000001.wal", 1, opts)
	if err != nil {
		log.Fatal(err)
	}
	_ = w.Append(1, []byte("job-17="), []byte("gardener")) // survives kill -9
	_ = w.Append(2, []byte("job-18="), []byte("baker"))
	if err := w.Sync(); err != nil { // survives loss of power
		log.Fatal(err)
	}
	if err := w.Close(); err != nil {
		log.Fatal(err)
	}

	result, err := wal.Replay("000001.wal", opts, func(sequence uint64, payload []byte) error {
		fmt.Printf("%d %s\n", sequence, payload)
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("records:", result.Records, "torn:", result.Torn)
	// Output:
	// 1 job-17=gardener
	// 2 job-18=baker
	// records: 2 torn: false
}
