package queue

import (
	"fmt"
	"log/slog"
	"sync"

	"docstore/queue/codec"
	"docstore/queue/internal/segment"

	"github.com/cockroachdb/errors"
)

// Dictionary training. Each segment begins with the current dictionary. A better one for
// the next segment is trained in the background, from a sample of the appended documents.
// This delays no append, with one exception: before the first dictionary of a queue is
// ready, a fast writer waits for it once, up to a twentieth of a second, so that no long
// segment is written without a dictionary (patienceShare).
const (
	// defaultDictionaryBytes is the size of trained dictionaries, the maximum of s2.
	defaultDictionaryBytes = 64 << 10
	// dictionaryShare: each segment contains its dictionary, so segments have to be at
	// least so many times as large as the dictionary.
	dictionaryShare = 16
	// sharedDictionaryShare is dictionaryShare in a group, whose queues are small parts of a
	// collection. A segment of this size with job postings has about the same size with a
	// dictionary as without.
	sharedDictionaryShare = 4
	// dictionaryGainPercent: a new dictionary has to store this much less than the
	// current one to replace it, because readers cache every dictionary in use.
	dictionaryGainPercent = 3
	// sampleShare is the size of the sample in dictionary sizes.
	sampleShare = 16
	// firstShare: the first dictionary of a queue is trained after so many times its size
	// have been appended. It trains in half the time of later ones and stores 3 % more,
	// but far less than no dictionary.
	firstShare = 8
	// maxFruitless: at least one in 2^maxFruitless segments is followed by a training.
	maxFruitless = 6
	// patienceShare: while the first dictionary is trained, a segment without one grows
	// to so many times its size; then the Writer waits for the training.
	patienceShare = 2 * dictionaryShare
	// maxSampleDocumentBytes: longer documents are not sampled, because they would fill
	// the sample.
	maxSampleDocumentBytes = 16 << 10
	// minSampleDocuments is the least number of documents to train from.
	minSampleDocuments = 16
)

// dictionary is a trained dictionary and the encoder that uses it.
type dictionary struct {
	bytes   []byte
	hash    codec.DictionaryHash
	encoder codec.Encoder
	sampled segment.Run // the segments that it was trained from, see segment.Header
}

func newDictionary(c codec.Codec, content []byte) (*dictionary, error) {
	enc, err := c.NewEncoder(content)
	if err != nil {
		return nil, err
	}
	return &dictionary{bytes: content, hash: codec.HashDictionary(content), encoder: enc}, nil
}

// sample keeps documents spread evenly over all that were appended: every stride-th one.
// When it is full it drops every other document and doubles the stride.
type sample struct {
	limit     int         // bytes
	from      segment.Run // the segments of the documents
	documents [][]byte
	bytes     int
	stride    int
	skip      int // documents to skip before the next one is kept
}

func newSample(limit int) *sample { return &sample{limit: limit, stride: 1} }

// add offers the next document, which is in segment n.
func (s *sample) add(n SegmentID, document []byte) {
	if s.from.First == 0 {
		s.from.First = n
	}
	s.from.Last = n
	if s.skip > 0 {
		s.skip--
		return
	}
	s.skip = s.stride - 1
	if len(document) == 0 || len(document) > maxSampleDocumentBytes {
		return
	}
	s.documents = append(s.documents, append([]byte(nil), document...))
	s.bytes += len(document)
	if s.bytes <= s.limit {
		return
	}
	s.stride *= 2
	kept := s.documents[:0]
	s.bytes = 0
	for i, d := range s.documents {
		if i%2 == 0 {
			kept = append(kept, d)
			s.bytes += len(d)
		}
	}
	clear(s.documents[len(kept):])
	s.documents = kept
}

// trainBetter trains a dictionary from every other document and compares it with the current
// one, which may be empty, on the rest. It returns nil if the gain is too small.
func trainBetter(c codec.Codec, inUse []byte, documents [][]byte, size int) (better *dictionary, err error) {
	defer func() {
		// The trainer is a library that gets arbitrary documents. A panic must not end
		// the process: the current dictionary stays in use.
		if p := recover(); p != nil {
			better, err = nil, errors.Newf("training a dictionary: %v", p)
		}
	}()
	if len(documents) < minSampleDocuments {
		return nil, codec.ErrSampleTooSmall
	}
	var learn, compare [][]byte
	for i, d := range documents {
		if i%2 == 0 {
			learn = append(learn, d)
		} else {
			compare = append(compare, d)
		}
	}
	content, err := c.Train(learn, size)
	if err != nil {
		return nil, errors.Wrap(err, "training a dictionary")
	}
	if len(content) > codec.MaxDictionaryBytes {
		return nil, fmt.Errorf("trained dictionary has %d bytes, more than %d", len(content), codec.MaxDictionaryBytes)
	}
	trained, err := newDictionary(c, content)
	if err != nil {
		return nil, errors.Wrap(err, "using a trained dictionary")
	}
	before, err := c.NewEncoder(inUse)
	if err != nil {
		return nil, err
	}
	if storedBytes(trained.encoder, compare)*100 > storedBytes(before, compare)*(100-dictionaryGainPercent) {
		return nil, nil
	}
	return trained, nil
}

// StoredBytes is the encoded size of the documents.
func storedBytes(enc codec.Encoder, documents [][]byte) int {
	var total int
	var out []byte
	for _, d := range documents {
		out, _ = segment.AppendEncoded(enc, out[:0], d)
		total += len(out)
	}
	return total
}

// trainer has the compression dictionary for the next segments, and trains better ones in the
// background from a sample of the appended documents. It belongs to a Writer or, with one
// dictionary for all, to a WriterGroup. It is safe for concurrent use.
type trainer struct {
	codec   codec.Codec
	bytes   int    // size of dictionaries; negative: none is trained
	queue   string // for messages
	logger  *slog.Logger
	running sync.WaitGroup // the goroutine that trains
	// save is called with a better dictionary before it is used; nil: nothing is to do.
	save func(content []byte)
	// shared: the documents are in several queues. So no queue can state which of its
	// segments a dictionary was trained on.
	shared bool

	mu struct {
		sync.Mutex
		dictionary *dictionary // for the next segment; nil: none
		sample     *sample
		sampled    int64            // bytes of documents offered to the sample
		trained    bool             // a first training was started
		fruitless  int              // consecutive trainings without a better dictionary, up to maxFruitless
		skip       int              // number of segments to end before the next training
		result     chan *dictionary // of the running training; nil: none runs
	}
}

// newTrainer returns a trainer of dictionaries of the given size.
func newTrainer(c codec.Codec, bytes int, queue string, logger *slog.Logger) *trainer {
	t := &trainer{codec: c, bytes: bytes, queue: queue, logger: logger}
	t.mu.sample = newSample(sampleShare * max(bytes, 0))
	return t
}

// wait waits for a running training.
func (t *trainer) wait() { t.running.Wait() }

// off reports whether no dictionaries are trained.
func (t *trainer) off() bool { return t.codec.Train == nil || t.bytes <= 0 }

// share returns the least size of a segment with a dictionary, in sizes of the dictionary.
func (t *trainer) share() uint64 {
	if t.shared {
		return sharedDictionaryShare
	}
	return dictionaryShare
}

// current returns the dictionary for the next segment; nil: none.
func (t *trainer) current() *dictionary {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.mu.dictionary
}

// use makes d the dictionary for the next segments.
func (t *trainer) use(d *dictionary) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mu.dictionary = d
}

// offer offers a document, which is in segment n, to the sample.
func (t *trainer) offer(n SegmentID, document []byte) {
	if t.off() {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mu.sample.add(n, document)
	t.mu.sampled += int64(len(document))
}

// blockEnded starts the first training if the sample is large enough.
func (t *trainer) blockEnded() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.mu.dictionary == nil && !t.mu.trained {
		t.train()
	}
}

// segmentEnded starts a training with a backoff: after each training without a gain the
// number of skipped segments doubles. If documents stay alike, a tenth of a second per
// segment would be wasted.
func (t *trainer) segmentEnded() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.mu.skip > 0 {
		t.mu.skip--
		return
	}
	t.train()
}

// train starts the training of a dictionary in the background, if the sample is large
// enough and no training is running. The mutex must be held.
func (t *trainer) train() {
	share := int64(sampleShare)
	if t.mu.dictionary == nil {
		share = firstShare
	}
	if t.off() || t.mu.result != nil || t.mu.sampled < share*int64(t.bytes) {
		return
	}
	var inUse []byte
	if t.mu.dictionary != nil {
		inUse = t.mu.dictionary.bytes
	}
	documents, from := t.mu.sample.documents, t.mu.sample.from
	if t.shared {
		from = segment.Run{} // unknown
	}
	t.mu.sample, t.mu.sampled = newSample(sampleShare*t.bytes), 0
	result := make(chan *dictionary, 1)
	t.mu.trained, t.mu.result = true, result
	t.running.Go(func() {
		better, err := trainBetter(t.codec, inUse, documents, t.bytes)
		if err != nil {
			t.logger.Warn("no new dictionary", "queue", t.queue, "error", err)
		}
		if better != nil {
			better.sampled = from
			t.logger.Info("new dictionary", "queue", t.queue, "bytes", len(better.bytes), "documents", len(documents))
			if t.save != nil {
				t.save(better.bytes)
			}
		}
		result <- better
	})
}

// take takes the result of a training that has ended. raw is the size of the open segment: if
// it has grown too large without a dictionary, take waits for the training.
func (t *trainer) take(raw uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.mu.result == nil {
		return
	}
	var better *dictionary
	if t.mu.dictionary == nil && raw >= patienceShare*uint64(t.bytes) {
		better = <-t.mu.result
	} else {
		select {
		case better = <-t.mu.result:
		default:
			return
		}
	}
	t.mu.result = nil
	if better != nil {
		t.mu.dictionary, t.mu.fruitless = better, 0
		return
	}
	t.mu.fruitless = min(t.mu.fruitless+1, maxFruitless)
	t.mu.skip = 1<<t.mu.fruitless - 1
}
