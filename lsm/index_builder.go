package lsm

// indexBuilder builds the index of a table.
type indexBuilder struct {
	records []byte
	keys    []byte
}

// add adds a block at an offset of the file.
func (x *indexBuilder) add(offset uint64, lastKey []byte) {
	x.keys = append(x.keys, lastKey...)
	x.records = order.AppendUint64(x.records, 0) // prefix, set by finish
	x.records = order.AppendUint64(x.records, offset)
	x.records = order.AppendUint64(x.records, uint64(len(x.keys)))
}

// blocks returns the number of blocks so far.
func (x *indexBuilder) blocks() int { return len(x.records) / indexRecordBytes }

// lastKey returns the last key of the last block; nil without blocks.
func (x *indexBuilder) lastKey() []byte {
	if x.blocks() < 2 {
		return x.keys
	}
	return x.keys[order.Uint64(x.records[len(x.records)-indexRecordBytes-8:]):]
}

// finish completes the records and returns the parts of the index.
func (x *indexBuilder) finish(minKey, maxKey []byte) [][]byte {
	shared := commonPrefix(minKey, maxKey)
	head := make([]byte, indexHeaderBytes)
	order.PutUint32(head, uint32(len(x.records)/indexRecordBytes))
	order.PutUint32(head[4:], uint32(shared))
	start := uint64(0)
	for record := x.records; len(record) > 0; record = record[indexRecordBytes:] {
		end := order.Uint64(record[16:])
		order.PutUint64(record, keyPrefix(x.keys[start+uint64(shared):end]))
		start = end
	}
	return [][]byte{head, x.records, x.keys}
}
