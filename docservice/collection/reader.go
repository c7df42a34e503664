package collection

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/cockroachdb/errors"

	"docstore/boxcarrpc/budget"
	"docstore/docservice"
	"docstore/docservice/internal/wire"
	"docstore/internal/residency"
	"docstore/lsm"
	"docstore/queue"
	"docstore/queue/codec"
	"docstore/queue/stored"
)

// reader answers requests from the index, the cache and the segments of a store.
type reader struct {
	*shared
	// decoders decode documents for callers that do not accept the stored form.
	decoders *stored.Decoders
	settler  *settler
	// unsettled is stored by the settler. A lookup loads it before it reads the index: an
	// entry is removed before its segment becomes settled.
	unsettled atomic.Pointer[unsettled]
	// Reads of the index and of the segments: those that are likely to wait for the disk
	// are made ahead.
	indexReads, segmentReads residency.Gauge
}

// get is Collection.Get. It returns a document in a codec of accept in its stored form and
// reports that.
func (r *reader) get(ctx context.Context, dst, id []byte, accept codec.Set, trace stages) (_ []byte, asStored bool, _ error) {
	if !wire.ValidIDBytes(len(id)) {
		return dst, false, r.answer(docservice.ErrBadID, queue.Address{})
	}
	g := r.health.gap.Load() // load it before the lookup: an entry that the tail applies later counts as read
	unsettled := r.unsettled.Load()
	end := trace.begin(StageIndex)
	group := r.indexReads.BeginOne()
	if group.IsShared() { // a lone read takes less time without
		r.index.ReadAhead([][]byte{id})
		group.Yield()
	}
	entry, err := r.lookUp(id)
	group.End(1)
	end()
	switch {
	case errors.Is(err, lsm.ErrNotFound):
		return dst, false, r.answer(absence(noEntry, g), queue.Address{})
	case err != nil:
		return dst, false, r.answer(err, queue.Address{})
	}
	cached := r.options.Cache != nil && !unsettled.holds(entry.address)
	if accept == 0 && budget.HasReservation(ctx) {
		return r.readPlain(ctx, dst, id, entry, cached, trace)
	}
	for expected := entry.place.StoredBytes() + storedHeaderRoom; ; {
		if accept != 0 {
			if err := budget.Reserve(ctx, expected); err != nil {
				return dst, false, err
			}
		}
		result, asStored, err := r.read(dst, id, entry, accept, cached, trace)
		size := len(result) - len(dst)
		if accept == 0 || size <= expected || budget.TryReserve(ctx, size) {
			return result, asStored, err
		}
		expected = size // an erasure has encoded the document again
	}
}

// read appends the document of an index entry to dst, from the cache or a segment.
func (r *reader) read(dst, id []byte, entry indexEntry, accept codec.Set, cached bool, trace stages) (_ []byte, asStored bool, _ error) {
	if cached {
		defer trace.begin(StageMemcached)()
		return r.getCached(dst, id, entry, accept)
	}
	defer trace.begin(StageSegment)()
	return r.fetch(dst, id, entry, accept)
}

// lookUp returns the index entry of an id, lsm.ErrNotFound if there is none, or an error of
// indexError.
func (r *reader) lookUp(id []byte) (indexEntry, error) {
	var buffer [indexEntryBytes]byte
	return parseLookUp(r.index.Get(buffer[:0], id))
}

// lookUpVerified is lookUp that also verifies the checksum of the entry's block. It takes
// about half a microsecond longer.
func (r *reader) lookUpVerified(id []byte) (indexEntry, error) {
	var buffer [indexEntryBytes]byte
	return parseLookUp(r.index.GetVerified(buffer[:0], id))
}

func parseLookUp(value []byte, err error) (indexEntry, error) {
	if err != nil {
		return indexEntry{}, indexError(err)
	}
	entry, err := decodeIndexEntry(value)
	return entry, indexError(err)
}

// fetch appends the document of an index entry to dst, as get does. If the id was
// overwritten after the entry was read, it returns the previous version: the document at an
// address never changes.
func (r *reader) fetch(dst, id []byte, entry indexEntry, accept codec.Set) (_ []byte, asStored bool, _ error) {
	if entry.expiry != 0 && entry.expired(r.options.Now()) {
		return r.fetchCurrent(dst, id, entry, accept, nil)
	}
	if entry.place == (queue.Place{}) {
		return r.fetchVerified(dst, id, entry, accept)
	}
	group := r.segmentReads.BeginOne()
	if group.IsCold() {
		r.queue.ReadAhead([]queue.Wanted{entry.wanted(id)})
		group.Yield()
	}
	result, asStored, err := r.queue.StoredFor(dst, entry.wanted(id), accept)
	group.End(1)
	if err == nil {
		r.collection.gets.found.Add(1)
		return result, asStored, nil
	}
	return r.fetchOther(dst, id, entry, accept, err)
}

// fetchOther is fetch for an entry whose address the queue failed to read with err.
func (r *reader) fetchOther(dst, id []byte, entry indexEntry, accept codec.Set, err error) (_ []byte, asStored bool, _ error) {
	var gone *queue.GoneError
	switch {
	case errors.Is(err, queue.ErrOtherPlace):
		return r.fetchVerified(dst, id, entry, accept)
	case errors.As(err, &gone), errors.Is(err, queue.ErrDeleted):
		return r.fetchCurrent(dst, id, entry, accept, gone)
	}
	return dst, false, r.answer(err, entry.address)
}

// fetchVerified is fetch for an entry whose place is not that of its document: compaction has encoded
// the document again, or the entry is damaged, or has no place. A verified entry needs no place.
func (r *reader) fetchVerified(dst, id []byte, entry indexEntry, accept codec.Set) (_ []byte, asStored bool, _ error) {
	g := r.health.gap.Load() // before the lookup, as in get
	present, err := r.lookUpVerified(id)
	switch {
	case errors.Is(err, lsm.ErrNotFound):
		return dst, false, r.answer(absence(noEntry, g), queue.Address{})
	case err != nil:
		return dst, false, r.answer(err, entry.address)
	case present != entry:
		return r.fetch(dst, id, present, accept)
	}
	wanted := entry.wanted(id)
	wanted.Place = queue.Place{}
	result, asStored, err := r.queue.StoredFor(dst, wanted, accept)
	if err != nil {
		return r.fetchOther(dst, id, entry, accept, err)
	}
	r.collection.gets.found.Add(1)
	return result, asStored, nil
}

// fetchCurrent is fetch for an entry without a document: it has expired, its address holds
// a delete, or compaction has left it out (gone).
func (r *reader) fetchCurrent(dst, id []byte, entry indexEntry, accept codec.Set, gone *queue.GoneError) (_ []byte, asStored bool, _ error) {
	current, err := r.current(id, entry, gone)
	if err != nil {
		return dst, false, r.answer(err, entry.address)
	}
	return r.fetch(dst, id, current, accept)
}

// current looks up and verifies the entry of an id, because an entry without a document may
// have been replaced by one with a document, and a damaged entry must not hide that. If there
// is no other entry, the error says whether the document exists.
func (r *reader) current(id []byte, entry indexEntry, gone *queue.GoneError) (indexEntry, error) {
	position := r.health.tailState().position
	g := r.health.gap.Load() // before the lookup, as in get
	present, err := r.lookUpVerified(id)
	switch {
	case errors.Is(err, lsm.ErrNotFound):
		return indexEntry{}, absence(noEntry, g)
	case err != nil || present != entry:
		return present, err
	case gone != nil && !isSettled(gone, position):
		return indexEntry{}, absence(notSettled, g)
	}
	err = absence(noDocument, g)
	if gone != nil && errors.Is(err, docservice.ErrNotFound) {
		r.settler.found(id, entry)
	}
	return indexEntry{}, err
}

// existing returns the entry, or one that has replaced it, if its document exists, and
// otherwise an error as of get. It reads no document.
func (r *reader) existing(id []byte, entry indexEntry) (indexEntry, error) {
	for {
		bytes, err := r.queue.DecodedBytes(entry.address)
		if err == nil && bytes == 0 { // maybe a delete
			_, err = r.queue.DocumentFor(nil, id, entry.address)
		}
		var gone *queue.GoneError
		switch {
		case err == nil:
			return entry, nil
		case errors.Is(err, queue.ErrClosed):
			return entry, ErrClosed
		case !errors.As(err, &gone) && !errors.Is(err, queue.ErrDeleted):
			return entry, unavailable(err)
		}
		entry, err = r.current(id, entry, gone)
		switch {
		case errors.Is(err, lsm.ErrClosed):
			return entry, ErrClosed
		case errors.Is(err, errIndex):
			return entry, unavailable(err)
		case err != nil:
			return entry, err
		}
	}
}

// isSettled reports whether an index that has followed the queue to a position includes the
// entries that made compaction leave out a document.
func isSettled(gone *queue.GoneError, position queue.Position) bool {
	return position.Queue == gone.Settled.Queue && position.Next.Compare(gone.Settled.Next) >= 0
}

// dictionary returns the dictionary with the hash, docservice.ErrUnavailable if no segment
// here holds it.
func (r *reader) dictionary(hash codec.DictionaryHash) ([]byte, error) {
	content, err := r.queue.Dictionary(nil, hash)
	switch {
	case errors.Is(err, queue.ErrClosed):
		return nil, ErrClosed
	case errors.Is(err, queue.ErrNoDictionary):
		return nil, unavailable(err)
	}
	return content, err
}

// isWithdrawn reports whether the queue states that it does not hold the document: a repair
// recorded it as lost, or it was truncated and the index has not followed yet. The files
// are sound, so this is not a fault.
func isWithdrawn(err error) bool {
	var lost *queue.LostError
	return errors.As(err, &lost) || errors.Is(err, queue.ErrTruncated)
}

// ofOtherHistory reports whether the index is known to belong to another history of the queue. Then
// its addresses say nothing about the files, which are verified without them.
func (r *reader) ofOtherHistory(err error) bool {
	return r.health.gap.Load() == gapForked && !errors.Is(err, errIndex)
}

// unavailable returns an error that matches docservice.ErrUnavailable and reason, with
// errors.Is of the standard library, too.
func unavailable(reason error) error { return fmt.Errorf("%w: %w", docservice.ErrUnavailable, reason) }

// errIndex is matched by every error of reading the index.
var errIndex = errors.New("docservice: reading the index failed")

// indexError makes an error of the index match errIndex, unless it is an answer: for any
// reason, the index cannot decide the id.
func indexError(err error) error {
	if err == nil || errors.Is(err, lsm.ErrNotFound) || errors.Is(err, lsm.ErrClosed) {
		return err
	}
	return fmt.Errorf("%w: %w", errIndex, err)
}

// answer converts an error of index or queue to one of this package, counts it, and records
// the fault behind it. at is the address that was read, if any.
func (r *reader) answer(err error, at queue.Address) error {
	switch {
	case errors.Is(err, docservice.ErrNotFound):
		r.collection.gets.notFound.Add(1)
		return docservice.ErrNotFound
	case errors.Is(err, docservice.ErrUnavailable): // absence
		r.collection.gets.unavailable.Add(1)
		return err
	case errors.Is(err, errIndex), errors.Is(err, queue.ErrUnavailable):
		// If the index cannot be read, the id is unavailable as well: another server may
		// have the document.
		r.collection.gets.unavailable.Add(1)
		if !isWithdrawn(err) && !r.ofOtherHistory(err) {
			r.recordFault(err, at)
		}
		return unavailable(err)
	case errors.Is(err, lsm.ErrClosed), errors.Is(err, queue.ErrClosed):
		return ErrClosed
	}
	r.collection.gets.failed.Add(1)
	return err
}
