package kafka

import (
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/internal/testseed"
	"docstore/queue"
)

func TestCursorGolden(t *testing.T) {
	p := &position{
		topicID: [16]byte{1, 2, 15: 16}, cluster: "c1", topic: "jobs", partitions: 3,
		entries: []entry{{0, 300, -1, 0}, {2, 1, 7, 0x1234}},
	}
	cursor := p.encode()
	require.Equal(t, "DSKA\x01\x01\x02\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x10\x02c1\x04jobs\x03\x02"+
		"\x00\xac\x02\x00\x00\x00"+"\x01\x01\x08\x34\x12", string(cursor))
	again, err := parsePosition(cursor)
	require.NoError(t, err)
	require.Equal(t, p, again)
	text, err := Describe(cursor)
	require.NoError(t, err)
	require.Equal(t, "topic jobs, offsets of 2 partitions that add up to 301", text)
	earlier, err := parsePosition([]byte("DSKA\x00\x01\x02\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x10\x02c1\x04jobs\x03\x02" +
		"\x00\xac\x02\x00" + "\x01\x01\x08"))
	require.NoError(t, err)
	p.entries[1].content = 0
	require.Equal(t, p, earlier)
}

func TestLargestCursorFits(t *testing.T) {
	p := &position{cluster: strings.Repeat("c", maxClusterBytes), topic: strings.Repeat("t", maxTopicBytes), partitions: math.MaxInt32}
	for i := range MaxPartitions {
		// As many large steps as the limit of the numbers allows.
		partition := min(i*(PartitionLimit/MaxPartitions), PartitionLimit-MaxPartitions+i)
		p.entries = append(p.entries, entry{int32(partition), offsetLimit - 1, epochLimit - 2, math.MaxUint16})
	}
	cursor := p.encode()
	require.LessOrEqual(t, len(cursor), queue.MaxCursorBytes)
	again, err := parsePosition(cursor)
	require.NoError(t, err)
	require.Equal(t, p, again)
}

func TestWrongCursors(t *testing.T) {
	good := (&position{topic: "t", partitions: 1, entries: []entry{{0, 5, 1, 9}}}).encode()
	for name, test := range map[string]struct {
		cursor string
		want   string
	}{
		"of a file":       {"DSUC\x00", "is not one of Kafka"},
		"magic alone":     {"DSKA", "is damaged"},
		"newer":           {"DSKA\x02", "of version 2, newer than this program"},
		"truncated":       {string(good[:len(good)-1]), "is damaged"},
		"longer":          {string(good) + "x", "is damaged"},
		"long cluster id": {"DSKA\x00" + strings.Repeat("\x00", 16) + "\xff", "is damaged"},
		"no topic":        {string((&position{}).encode()), "is damaged"},
		"partition number": {
			string((&position{topic: "t", entries: []entry{{PartitionLimit, 5, 1, 9}}}).encode()), "is damaged",
		},
		"entries": {string(append((&position{topic: "t"}).encode()[:23], 0, 0xff, 0xff, 0xff, 0x7f)), "is damaged"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := parsePosition([]byte(test.cursor))
			require.ErrorContains(t, err, test.want)
		})
	}
}

func TestCombine(t *testing.T) {
	at := func(entries ...entry) []byte {
		return (&position{topic: "t", partitions: 3, entries: entries}).encode()
	}
	o := &Opener{}
	for name, test := range map[string]struct {
		a, b, want []byte
		within     bool
	}{
		"equal":             {at(entry{0, 5, 1, 0}), at(entry{0, 5, 1, 0}), at(entry{0, 5, 1, 0}), true},
		"earlier":           {at(entry{0, 5, 1, 0}, entry{1, 7, 1, 0}), at(entry{0, 4, 0, 0}), at(entry{0, 5, 1, 0}, entry{1, 7, 1, 0}), true},
		"later":             {at(entry{0, 4, 0, 0}), at(entry{0, 5, 1, 0}), at(entry{0, 5, 1, 0}), false},
		"each is ahead":     {at(entry{0, 5, 1, 0}, entry{1, 7, 1, 0}), at(entry{0, 6, 2, 0}, entry{1, 2, 0, 0}), at(entry{0, 6, 2, 0}, entry{1, 7, 1, 0}), false},
		"another partition": {at(entry{0, 5, 1, 0}), at(entry{2, 1, 0, 0}), at(entry{0, 5, 1, 0}, entry{2, 1, 0, 0}), false},
		"start":             {at(entry{0, 5, 1, 0}), nil, at(entry{0, 5, 1, 0}), true},
		"behind the start":  {nil, at(entry{0, 5, 1, 0}), at(entry{0, 5, 1, 0}), false},
	} {
		t.Run(name, func(t *testing.T) {
			got, within, err := o.Combine(test.a, test.b)
			require.NoError(t, err)
			require.Equal(t, test.want, got)
			require.Equal(t, test.within, within)
		})
	}
	_, _, err := o.Combine(at(), (&position{topic: "other"}).encode())
	require.ErrorContains(t, err, "different topics")
	_, _, err = o.Combine(at(), []byte("x"))
	require.Error(t, err)
	_, _, err = o.Combine([]byte("x"), at())
	require.Error(t, err)
}

func FuzzCursor(f *testing.F) {
	f.Add((&position{cluster: "c", topic: "t", partitions: 2, entries: []entry{{0, 5, 1, 9}, {1, 1 << 40, -1, 0}}}).encode())
	f.Add([]byte("DSKA\x00"))
	f.Fuzz(func(t *testing.T, cursor []byte) {
		p, err := parsePosition(cursor)
		if err != nil {
			return
		}
		require.LessOrEqual(t, len(p.encode()), queue.MaxCursorBytes)
		again, err := parsePosition(p.encode())
		require.NoError(t, err)
		require.Equal(t, p, again)
	})
}

func TestEarliest(t *testing.T) {
	at := func(partitions int32, entries ...entry) *position {
		return &position{topic: "t", partitions: partitions, entries: entries}
	}
	got, err := earliest([]*position{
		at(3, entry{0, 10, 1, 0}, entry{1, 5, 4, 0}, entry{2, 1, 1, 0}),
		at(2, entry{0, 9, 2, 0}, entry{1, 7, 4, 0}),
		at(3, entry{0, 11, 2, 0}, entry{1, 5, 5, 0}, entry{2, 0, -1, 0}),
	})
	require.NoError(t, err)
	require.Equal(t, at(2, entry{0, 9, 2, 0}, entry{1, 5, 4, 0}), got)

	_, err = earliest([]*position{at(1), {topic: "t", topicID: [16]byte{1}, partitions: 1}})
	require.ErrorContains(t, err, "different topics")
}

// TestEarliestIsAtOrBeforeEach draws random positions.
func TestEarliestIsAtOrBeforeEach(t *testing.T) {
	random := testseed.Rand(t)
	for range 200 {
		positions := make([]*position, 1+random.IntN(5))
		for i := range positions {
			p := &position{topic: "t", partitions: 1 + random.Int32N(5)}
			for n := range p.partitions {
				if random.IntN(4) > 0 {
					p.set(entry{n, random.Int64N(9), random.Int32N(3), 0})
				}
			}
			positions[i] = p
		}
		before := positions[0].clone()
		got, err := earliest(positions)
		require.NoError(t, err)
		require.Equal(t, before, positions[0], "the argument is unchanged")
		for _, p := range positions {
			require.LessOrEqual(t, got.partitions, p.partitions)
			for _, e := range got.entries {
				i, found := p.find(e.partition)
				require.True(t, found)
				require.LessOrEqual(t, e.offset, p.entries[i].offset)
			}
		}
	}
}

func TestCheckEntry(t *testing.T) {
	for _, test := range []struct {
		name string
		at   entry
		log  ends
		want string // part of the error
	}{
		{"inside", entry{0, 5, 1, 0}, ends{start: 0, end: 9, epochEnd: 7}, ""},
		{"at the end", entry{0, 9, 1, 0}, ends{start: 0, end: 9, epochEnd: 9}, ""},
		{"at the start", entry{0, 5, 1, 0}, ends{start: 5, end: 9, epochEnd: 9}, ""},
		{"everything deleted", entry{0, 9, 1, 0}, ends{start: 9, end: 9, epochEnd: -1}, ""},
		{"deleted", entry{3, 5, 1, 0}, ends{start: 7, end: 9, epochEnd: 9}, "partition 3: the messages at offsets 5 to 6 were deleted before they were read"},
		{"truncated", entry{0, 5, 1, 0}, ends{start: 0, end: 4, epochEnd: -1}, "offsets 4 to 4 were read, and the log ends before them"},
		{"replaced", entry{0, 5, 1, 0}, ends{start: 0, end: 9, epochEnd: 3}, "offsets 3 to 4 were read and then lost or replaced"},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := checkEntry(test.at, test.log)
			if test.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, test.want)
		})
	}
}

func TestBegin(t *testing.T) {
	after := &position{topic: "t", partitions: 2}
	e, err := begin(1, after, ends{start: 7})
	require.NoError(t, err, "the partition was not selected before")
	require.Equal(t, entry{1, 7, -1, 0}, e)
	e, err = begin(0, nil, ends{start: 7})
	require.NoError(t, err)
	require.Equal(t, entry{0, 7, -1, 0}, e)
	e, err = begin(2, after, ends{})
	require.NoError(t, err)
	require.Equal(t, entry{2, 0, -1, 0}, e)
	_, err = begin(2, after, ends{start: 7})
	require.ErrorContains(t, err, "offsets 0 to 6 were deleted before they were read")
}
