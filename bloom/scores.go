package bloom

import (
	"bytes"
	"fmt"
	"math"

	"github.com/cockroachdb/errors"

	"docstore/internal/checksum"
)

// Encoded scores: a header, then for each filter its identity and the tallies of its
// pages.
const (
	scoresMagic   = "DOCSCORE"
	scoresVersion = 0

	scoresHeaderBytes = 24
	scoresFilterBytes = 16 // before the tallies
	tallyBytes        = 8

	scoresCRCAt      = 8
	scoresVersionAt  = 12
	scoresReservedAt = 14
	scoresFiltersAt  = 20

	scoresIndexCRCAt = 0
	scoresPagesAt    = 4
	scoresKeysAt     = 8
)

// identity identifies a filter.
type identity struct {
	indexCRC uint32
	pages    uint32
	keys     uint64
}

func (f *Filter) identity() identity {
	return identity{indexCRC: f.crc, pages: uint32(len(f.pages)), keys: f.keys}
}

// Scores returns the encoded tallies of all pages, about 8 bytes per page. A store
// saves them periodically and passes them to Restore after a restart.
func (m *Manager) Scores() []byte {
	m.lock()
	defer m.mu.Unlock()
	filters := *m.filters.Load()
	b := make([]byte, scoresHeaderBytes)
	copy(b, scoresMagic)
	order.PutUint16(b[scoresVersionAt:], scoresVersion)
	order.PutUint32(b[scoresFiltersAt:], uint32(len(filters)))
	for _, f := range filters {
		f.take()
		id := f.identity()
		b = order.AppendUint32(b, id.indexCRC)
		b = order.AppendUint32(b, id.pages)
		b = order.AppendUint64(b, id.keys)
		for _, t := range f.tallies {
			b = order.AppendUint32(b, math.Float32bits(t.requests))
			b = order.AppendUint32(b, math.Float32bits(t.misses))
		}
	}
	order.PutUint32(b[scoresCRCAt:], checksum.Of(b[scoresVersionAt:]))
	return b
}

// Restore decodes the result of Scores. The next Update or Track applies it to the
// filters that it describes. path names its file in errors, which are ErrNewerVersion
// or a *CorruptionError; after an error the ranking starts from zero.
func (m *Manager) Restore(path string, scores []byte) error {
	restored, at, err := decodeScores(scores)
	if errors.Is(err, ErrNewerVersion) {
		return errors.Wrapf(err, "bloom: restore %s", path)
	}
	if err != nil {
		return &CorruptionError{Path: path, Offset: int64(at), Reason: err.Error()}
	}
	m.lock()
	defer m.mu.Unlock()
	m.mu.restored = restored
	return nil
}

// decodeScores returns the tallies of each filter. On error, offset is the position in
// b.
func decodeScores(b []byte) (result map[identity][]tally, offset int, err error) {
	if len(b) < scoresHeaderBytes || string(b[:len(scoresMagic)]) != scoresMagic {
		return nil, 0, errors.New("not the scores of filters")
	}
	if got, want := checksum.Of(b[scoresVersionAt:]), order.Uint32(b[scoresCRCAt:]); got != want {
		return nil, 0, fmt.Errorf("checksum %08x, want %08x", got, want)
	}
	if v := order.Uint16(b[scoresVersionAt:]); v > scoresVersion {
		return nil, 0, errors.Wrapf(ErrNewerVersion, "version %d, want at most %d", v, scoresVersion)
	}
	reserved := b[scoresReservedAt:scoresFiltersAt]
	if bytes.Count(reserved, []byte{0}) != len(reserved) {
		return nil, 0, errors.New("reserved bytes are not zero")
	}
	result = map[identity][]tally{}
	offset = scoresHeaderBytes
	for range order.Uint32(b[scoresFiltersAt:]) {
		rest := b[offset:]
		if len(rest) < scoresFilterBytes {
			return nil, offset, errors.New("a filter exceeds the file")
		}
		id := identity{
			indexCRC: order.Uint32(rest[scoresIndexCRCAt:]),
			pages:    order.Uint32(rest[scoresPagesAt:]),
			keys:     order.Uint64(rest[scoresKeysAt:]),
		}
		rest = rest[scoresFilterBytes:]
		if uint64(id.pages) > uint64(len(rest)/tallyBytes) {
			return nil, offset, fmt.Errorf("%d pages in %d bytes", id.pages, len(rest))
		}
		tallies := make([]tally, id.pages)
		for i := range tallies {
			t := tally{
				requests: math.Float32frombits(order.Uint32(rest[i*tallyBytes:])),
				misses:   math.Float32frombits(order.Uint32(rest[i*tallyBytes+4:])),
			}
			if !isCount(t.requests) || !isCount(t.misses) {
				return nil, offset, fmt.Errorf("page %d: %v requests, %v misses", i, t.requests, t.misses)
			}
			tallies[i] = t
		}
		result[id] = tallies
		offset += scoresFilterBytes + len(tallies)*tallyBytes
	}
	if offset != len(b) {
		return nil, offset, fmt.Errorf("%d bytes after the last filter", len(b)-offset)
	}
	return result, 0, nil
}

// isCount reports whether x is a plausible tally. The upper bound keeps sums finite.
func isCount(x float32) bool { return x >= 0 && x <= 1<<40 }
