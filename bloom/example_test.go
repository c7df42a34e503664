package bloom_test

import (
	"bytes"
	"fmt"
	"io"
	"log"

	"docstore/bloom"
)

func Example() {
	// While the table is written, in ascending key order:
	builder := bloom.NewBuilder(nil)
	for _, key := range []string{"baker", "cook", "gardener"} {
		builder.Add([]byte(key))
	}
	file := builder.Finish(nil)

	// When the table is opened:
	section := io.NewSectionReader(bytes.NewReader(file), 0, int64(len(file)))
	filter, err := bloom.Open("jobs.table", section)
	if err != nil {
		log.Fatal(err)
	}
	manager := bloom.NewManager(1 << 20)
	if err := manager.Update(filter); err != nil {
		log.Fatal(err)
	}

	// For each lookup:
	table := map[string]bool{"baker": true, "cook": true, "gardener": true}
	for _, key := range []string{"cook", "pilot"} {
		h := bloom.HashKey([]byte(key))
		probe := filter.Probe([]byte(key))
		if !probe.MayContain(h) {
			fmt.Println(key, "is not there")
			continue
		}
		if !table[key] {
			probe.Missed([]byte(key)) // a false positive, or the page is not in memory
		}
		fmt.Println(key, table[key])
	}
	stats := filter.Stats()
	fmt.Println("lookups saved:", stats.No, "of", stats.Probes)
	// Output:
	// cook true
	// pilot is not there
	// lookups saved: 1 of 2
}
