package collection

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"docstore/queue"
)

func TestFaultListKeepsTheFirstTime(t *testing.T) {
	var l faultList
	first := time.Unix(1, 0)
	assert.True(t, l.setTail(Fault{Segment: 3, Offset: 8, Reason: "bad table", Since: first}))
	assert.False(t, l.setTail(Fault{Segment: 3, Offset: 8, Reason: "bad table", Since: first.Add(time.Hour)}), "the same again")
	faults, more := l.list()
	require.Len(t, faults, 1)
	assert.Zero(t, more)
	assert.Equal(t, first, faults[0].Since)
	assert.True(t, faults[0].StopsTail)

	assert.True(t, l.setTail(Fault{Segment: 3, Offset: 8, Reason: "short", Since: first}), "another reason is a new fault")
	assert.True(t, l.clearTail())
	assert.False(t, l.clearTail())
	faults, _ = l.list()
	assert.Empty(t, faults)
}

func TestFaultListIsBoundedAndSorted(t *testing.T) {
	var l faultList
	segments := MaxFaults // twice as many faults as are listed
	for id := segments; id >= 1; id-- {
		for offset := range 2 {
			assert.True(t, l.add(Fault{Segment: queue.SegmentID(id), Offset: int64(offset), Path: sealedName(queue.SegmentID(id))}))
			assert.False(t, l.add(Fault{Segment: queue.SegmentID(id), Offset: int64(offset), Path: sealedName(queue.SegmentID(id))}), "found again")
		}
	}
	l.add(Fault{Path: "000001.table", Reason: "bad block"})
	l.setTail(Fault{Segment: 9})
	faults, more := l.list()
	require.Len(t, faults, MaxFaults)
	assert.Equal(t, 2*segments+2-MaxFaults, more)
	assert.True(t, faults[0].StopsTail)
	assert.Equal(t, "000001.table", faults[1].Path)
	assert.Equal(t, queue.SegmentID(1), faults[2].Segment)
	assert.Equal(t, queue.SegmentID(2), faults[4].Segment)

	_, repaired := l.replace(originalFile(1), nil)
	assert.True(t, repaired)
	_, repaired = l.replace(originalFile(1), nil)
	assert.False(t, repaired, "there were no faults left")
	_, after := l.list()
	assert.Equal(t, more-2, after)
}

func TestFaultListKeepsSomeOfEachSegment(t *testing.T) {
	var l faultList
	for offset := range 10 * maxSegmentFaults {
		news := l.add(Fault{Segment: 1, Path: sealedName(1), Offset: int64(offset)})
		assert.Equal(t, offset < maxSegmentFaults, news)
	}
	faults, _ := l.list()
	assert.Len(t, faults, maxSegmentFaults)
}

func TestFaultListReplace(t *testing.T) {
	var l faultList
	first, later := time.Unix(1, 0), time.Unix(2, 0)
	l.add(Fault{Segment: 1, Path: sealedName(1), Offset: 10, Since: first})
	l.add(Fault{Segment: 1, Path: sealedName(1), Offset: 20, Since: first})

	news, repaired := l.replace(originalFile(1), []Fault{{Segment: 1, Path: sealedName(1), Offset: 20, Since: later}, {Segment: 1, Path: sealedName(1), Offset: 30, Since: later}})
	assert.False(t, repaired)
	assert.Equal(t, []Fault{{Segment: 1, Path: sealedName(1), Offset: 30, Since: later}}, news)
	faults, _ := l.list()
	assert.Equal(t, []Fault{{Segment: 1, Path: sealedName(1), Offset: 20, Since: first}, {Segment: 1, Path: sealedName(1), Offset: 30, Since: later}}, faults)
}

func TestFaultString(t *testing.T) {
	assert.Equal(t, "q/0000000003.seg: segment 3, offset 8: bad table (the queue is not read beyond it)",
		Fault{Path: "q/0000000003.seg", Segment: 3, Offset: 8, Reason: "bad table", StopsTail: true}.String())
	assert.Equal(t, "/index/1.table, offset 64: bad block (some documents are unavailable)",
		Fault{Path: "/index/1.table", Offset: 64, Reason: "bad block"}.String())
	assert.Equal(t, "disk is full (the queue is not read beyond it)",
		Fault{Reason: "disk is full", StopsTail: true}.String())
}

func originalFile(id queue.SegmentID) segmentFile {
	return segmentFile{segmentKey: segmentKey{id: id}, last: id, path: sealedName(id)}
}

// Checking one file does not change the faults of another file that holds the same segment.
func TestFaultListReplacesByFile(t *testing.T) {
	var l faultList
	rewrite := segmentFile{segmentKey: segmentKey{1, 2}, last: 3, path: "0000000001-0000000003.0002.seg"}
	inOriginal := Fault{Segment: 2, Path: sealedName(2) + queue.QuarantineSuffix}
	l.add(inOriginal)
	l.add(Fault{Segment: 2, Path: rewrite.path})
	l.add(Fault{Segment: 3, Path: rewrite.path + queue.QuarantineSuffix})
	assert.True(t, l.has(rewrite))
	assert.True(t, l.has(originalFile(2)))
	assert.False(t, l.has(originalFile(3)))
	_, repaired := l.replace(rewrite, nil)
	assert.True(t, repaired)
	faults, _ := l.list()
	assert.Equal(t, []Fault{inOriginal}, faults)
}
