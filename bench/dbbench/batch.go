package main

// batchEntries is the number of writes in a transaction of a B-tree: a transaction for each write
// would copy the path from the root each time.
const batchEntries = 1000

// batch collects copies of writes.
type batch struct {
	data []byte
	ends []int // of keys and values alternately
}

func (b *batch) empty() bool { return len(b.ends) == 0 }

func (b *batch) add(key, value []byte) (full bool) {
	b.data = append(b.data, key...)
	b.ends = append(b.ends, len(b.data))
	b.data = append(b.data, value...)
	b.ends = append(b.ends, len(b.data))
	return len(b.ends) == 2*batchEntries
}

// drain returns all writes and clears the batch.
func (b *batch) drain(put func(key, value []byte) error) error {
	start := 0
	for i := 0; i < len(b.ends); i += 2 {
		if err := put(b.data[start:b.ends[i]], b.data[b.ends[i]:b.ends[i+1]]); err != nil {
			return err
		}
		start = b.ends[i+1]
	}
	b.data, b.ends = b.data[:0], b.ends[:0]
	return nil
}
