package collection

import (
	"encoding/binary"

	"github.com/cockroachdb/errors"

	"docstore/lsm"
	"docstore/queue"
)

// stateKey is the index key of the state. No document has the empty id.
var stateKey = []byte{}

// indexState says which part of the queue an index includes. It is written in the same
// atomic batch as the entries. Encoded: the position (queue.Position.MarshalBinary), and for
// each unsettled run its first and last segment, little-endian u32. An earlier release takes
// a state with runs for damage, and builds the index from the queue.
type indexState struct {
	position  queue.Position
	unsettled unsettled // see settler
}

const segmentRunBytes = 8

// putIn adds the state to a batch.
func (s *indexState) putIn(batch *lsm.Batch) error {
	value, err := s.position.MarshalBinary()
	if err != nil {
		return err
	}
	for _, run := range s.unsettled {
		value = binary.LittleEndian.AppendUint32(value, uint32(run.first))
		value = binary.LittleEndian.AppendUint32(value, uint32(run.last))
	}
	return batch.Set(stateKey, value)
}

// readIndexState returns the state stored in an index, the zero one of a new index.
func readIndexState(index *lsm.DB) (s indexState, _ error) {
	value, err := index.GetVerified(nil, stateKey)
	if errors.Is(err, lsm.ErrNotFound) {
		return s, nil
	}
	if err != nil {
		return s, err
	}
	runs := value[min(queue.PositionBytes, len(value)):]
	err = s.position.UnmarshalBinary(value[:len(value)-len(runs)])
	for ; err == nil && len(runs) > 0; runs = runs[segmentRunBytes:] {
		if len(runs) < segmentRunBytes {
			err = errors.Wrapf(queue.ErrCorrupt, "%d bytes after the position", len(runs))
			break
		}
		s.unsettled = append(s.unsettled, segmentRun{
			queue.SegmentID(binary.LittleEndian.Uint32(runs)), queue.SegmentID(binary.LittleEndian.Uint32(runs[4:])),
		})
	}
	return s, errors.Wrap(err, "read the stored position")
}
