package ingest_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"docstore/ingest"
	"docstore/queue/shard"
)

// partitions is an input of several sequences. Each time they are read in another order. Its
// cursors have the number of records that were read of each.
type partitions struct{ ids [3][]string }

// offsets is a decoded cursor.
type offsets [3]int

func (at offsets) cursor() []byte { return fmt.Appendf(nil, "%d %d %d", at[0], at[1], at[2]) }

func parseOffsets(cursor []byte) (at offsets, err error) {
	if len(cursor) > 0 {
		_, err = fmt.Sscanf(string(cursor), "%d %d %d", &at[0], &at[1], &at[2])
	}
	return at, err
}

func (in *partitions) Position(cursor []byte) (ingest.Position, error) { return parseOffsets(cursor) }

func (in *partitions) Ends() bool { return true }

func (in *partitions) Earliest(cursors [][]byte) ([]byte, error) {
	earliest, err := parseOffsets(cursors[0])
	for _, cursor := range cursors[1:] {
		var at offsets
		if at, err = parseOffsets(cursor); err != nil {
			break
		}
		for i := range at {
			earliest[i] = min(earliest[i], at[i])
		}
	}
	return earliest.cursor(), err
}

func (in *partitions) Combine(a, b []byte) ([]byte, bool, error) {
	at, err := parseOffsets(a)
	if err != nil {
		return nil, false, err
	}
	other, err := parseOffsets(b)
	within := true
	for i := range at {
		within = within && other[i] <= at[i]
		at[i] = max(at[i], other[i])
	}
	return at.cursor(), within, err
}

func (in *partitions) Open(context.Context, []byte) (ingest.Source, error) { panic("not used") }

func (in *partitions) start(random *rand.Rand, from []byte) func(size int) *ingest.Batch {
	at, err := parseOffsets(from)
	if err != nil {
		panic(err)
	}
	// Reading is uneven: some partitions are far ahead of others.
	weights := [3]int{1 + random.IntN(20), 1 + random.IntN(20), 1 + random.IntN(20)}
	return func(size int) *ingest.Batch {
		type place struct{ partition, offset int }
		var places []place
		var cursors []offsets
		b := &ingest.Batch{
			AppendCursor: func(dst []byte, i int) []byte { return append(dst, cursors[i].cursor()...) },
			Included:     func(p ingest.Position, i int) bool { return p.(offsets)[places[i].partition] > places[i].offset },
		}
		for len(b.Records) < size {
			total := 0
			for p, w := range weights {
				if at[p] < len(in.ids[p]) {
					total += w
				}
			}
			if total == 0 {
				break
			}
			pick, p := random.IntN(total), 0
			for ; ; p++ {
				if at[p] == len(in.ids[p]) {
					continue
				}
				if pick -= weights[p]; pick < 0 {
					break
				}
			}
			places = append(places, place{p, at[p]})
			b.Records = append(b.Records, ingest.Record{ID: []byte(in.ids[p][at[p]]), Document: fmt.Appendf(nil, "%d/%d", p, at[p])})
			at[p]++
			cursors = append(cursors, at)
		}
		return b
	}
}

// TestExactlyOnceInterleaved is TestExactlyOnce for a source of several partitions.
func TestExactlyOnceInterleaved(t *testing.T) {
	in := &partitions{}
	testExactlyOnce(t, true, func(random *rand.Rand, l shard.Layout, n int) (testInput, []string) {
		if n == 0 {
			in = &partitions{}
		}
		// The same source has new records.
		var documents []string
		for p := range in.ids {
			first := len(in.ids[p])
			in.ids[p] = append(in.ids[p], newInput(random, l, strings.Repeat("x", p), 100).ids...)
			for i := first; i < len(in.ids[p]); i++ {
				documents = append(documents, fmt.Sprintf("%d/%d", p, i))
			}
		}
		return in, documents
	})
}
