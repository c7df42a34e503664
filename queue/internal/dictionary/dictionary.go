// Package dictionary trains the compression dictionaries of a queue.
//
// Each segment begins with the current dictionary. A better one for the next segment is
// trained in the background, from a sample of the appended documents. This delays no append,
// with one exception: before the first dictionary of a queue is ready, a fast writer waits for
// it once, up to a twentieth of a second, so that no long segment is written without a
// dictionary (patienceShare).
//
// A [Trainer] belongs to a Writer or to the Writers of a group. A rewrite that erases documents
// calls [Train] itself. The package must not know files: it gets documents and returns bytes.
package dictionary

import (
	"fmt"
	"log/slog"
	"sync"

	"docstore/queue/codec"
	"docstore/queue/internal/segment"

	"github.com/cockroachdb/errors"
)

// Sizes and shares of dictionaries and samples.
const (
	// DefaultBytes is the size of trained dictionaries, the maximum of s2.
	DefaultBytes = 64 << 10
	// Share: each segment contains its dictionary, so segments have to be at
	// least so many times as large as the dictionary.
	Share = 16
	// sharedDictionaryShare is Share in a group, whose queues are small parts of a
	// collection. A segment of this size with job postings has about the same size with a
	// dictionary as without.
	sharedDictionaryShare = 4
	// dictionaryGainPercent: a new dictionary has to store this much less than the
	// current one to replace it, because readers cache every dictionary in use.
	dictionaryGainPercent = 3
	// SampleShare is the size of the sample in dictionary sizes.
	SampleShare = 16
	// firstShare: the first dictionary of a queue is trained after so many times its size
	// have been appended. It trains in half the time of later ones and stores 3 % more,
	// but far less than no dictionary.
	firstShare = 8
	// maxFruitless: at least one in 2^maxFruitless segments is followed by a training.
	maxFruitless = 6
	// patienceShare: while the first dictionary is trained, a segment without one grows
	// to so many times its size; then the Writer waits for the training.
	patienceShare = 2 * Share
	// maxSampleDocumentBytes: longer documents are not sampled, because they would fill
	// the sample.
	maxSampleDocumentBytes = 16 << 10
	// minSampleDocuments is the least number of documents to train from.
	minSampleDocuments = 16
)

// Dictionary is a trained dictionary and the encoder that uses it.
type Dictionary struct {
	Bytes   []byte
	Hash    codec.DictionaryHash
	Encoder codec.Encoder
	Sampled segment.Run // the segments that it was trained from, see segment.Header
}

// New returns the dictionary with the content.
func New(c codec.Codec, content []byte) (*Dictionary, error) {
	enc, err := c.NewEncoder(content)
	if err != nil {
		return nil, err
	}
	return &Dictionary{Bytes: content, Hash: codec.HashDictionary(content), Encoder: enc}, nil
}

// Sample keeps documents spread evenly over all that were appended: every stride-th one.
// When it is full it drops every other document and doubles the stride.
type Sample struct {
	limit     int         // bytes
	from      segment.Run // the segments of the documents
	Documents [][]byte
	bytes     int
	stride    int
	skip      int // documents to skip before the next one is kept
}

// NewSample returns an empty sample of at most limit bytes.
func NewSample(limit int) *Sample { return &Sample{limit: limit, stride: 1} }

// Add offers the next document, which is in segment n.
func (s *Sample) Add(n segment.ID, document []byte) {
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
	s.Documents = append(s.Documents, append([]byte(nil), document...))
	s.bytes += len(document)
	if s.bytes <= s.limit {
		return
	}
	s.stride *= 2
	kept := s.Documents[:0]
	s.bytes = 0
	for i, d := range s.Documents {
		if i%2 == 0 {
			kept = append(kept, d)
			s.bytes += len(d)
		}
	}
	clear(s.Documents[len(kept):])
	s.Documents = kept
}

// Train trains a dictionary from every other document and compares it with the current
// one, which may be nil, on the rest. It returns nil if the gain is too small.
func Train(c codec.Codec, inUse *Dictionary, documents [][]byte, size int) (better *Dictionary, err error) {
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
	trained, err := New(c, content)
	if err != nil {
		return nil, errors.Wrap(err, "using a trained dictionary")
	}
	if inUse == nil {
		if inUse, err = New(c, nil); err != nil {
			return nil, err
		}
	}
	if storedBytes(trained.Encoder, compare)*100 > storedBytes(inUse.Encoder, compare)*(100-dictionaryGainPercent) {
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

// Trainer has the compression dictionary for the next segments, and trains better ones in the
// background from a sample of the appended documents. It belongs to a Writer or, with one
// dictionary for all, to a WriterGroup. It is safe for concurrent use.
type Trainer struct {
	Codec   codec.Codec
	bytes   int    // size of dictionaries; negative: none is trained
	queue   string // for messages
	logger  *slog.Logger
	running sync.WaitGroup // the goroutine that trains
	// Save is called with a better dictionary before it is used; nil: nothing is to do.
	Save func(content []byte)
	// Shared: the documents are in several queues. So no queue can state which of its
	// segments a dictionary was trained on.
	Shared bool

	mu struct {
		sync.Mutex
		dictionary *Dictionary // for the next segment; nil: none
		sample     *Sample
		sampled    int64            // bytes of documents offered to the sample
		trained    bool             // a first training was started
		fruitless  int              // consecutive trainings without a better dictionary, up to maxFruitless
		skip       int              // number of segments to end before the next training
		result     chan *Dictionary // of the running training; nil: none runs
	}
}

// NewTrainer returns a trainer of dictionaries of the given size.
func NewTrainer(c codec.Codec, bytes int, queue string, logger *slog.Logger) *Trainer {
	t := &Trainer{Codec: c, bytes: bytes, queue: queue, logger: logger}
	t.mu.sample = NewSample(SampleShare * max(bytes, 0))
	return t
}

// Wait waits for a running training.
func (t *Trainer) Wait() { t.running.Wait() }

// Off reports whether no dictionaries are trained.
func (t *Trainer) Off() bool { return t.Codec.Train == nil || t.bytes <= 0 }

// Share returns the least size of a segment with a dictionary, in sizes of the dictionary.
func (t *Trainer) Share() uint64 {
	if t.Shared {
		return sharedDictionaryShare
	}
	return Share
}

// Current returns the dictionary for the next segment; nil: none.
func (t *Trainer) Current() *Dictionary {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.mu.dictionary
}

// Use makes d the dictionary for the next segments.
func (t *Trainer) Use(d *Dictionary) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mu.dictionary = d
}

// Offer offers a document, which is in segment n, to the sample.
func (t *Trainer) Offer(n segment.ID, document []byte) {
	if t.Off() {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mu.sample.Add(n, document)
	t.mu.sampled += int64(len(document))
}

// BlockEnded starts the first training if the sample is large enough.
func (t *Trainer) BlockEnded() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.mu.dictionary == nil && !t.mu.trained {
		t.train()
	}
}

// SegmentEnded starts a training with a backoff: after each training without a gain the
// number of skipped segments doubles. If documents stay alike, a tenth of a second per
// segment would be wasted.
func (t *Trainer) SegmentEnded() {
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
func (t *Trainer) train() {
	share := int64(SampleShare)
	if t.mu.dictionary == nil {
		share = firstShare
	}
	if t.Off() || t.mu.result != nil || t.mu.sampled < share*int64(t.bytes) {
		return
	}
	inUse, documents, from := t.mu.dictionary, t.mu.sample.Documents, t.mu.sample.from
	if t.Shared {
		from = segment.Run{} // unknown
	}
	t.mu.sample, t.mu.sampled = NewSample(SampleShare*t.bytes), 0
	result := make(chan *Dictionary, 1)
	t.mu.trained, t.mu.result = true, result
	t.running.Go(func() {
		better, err := Train(t.Codec, inUse, documents, t.bytes)
		if err != nil {
			t.logger.Warn("no new dictionary", "queue", t.queue, "error", err)
		}
		if better != nil {
			better.Sampled = from
			t.logger.Info("new dictionary", "queue", t.queue, "bytes", len(better.Bytes), "documents", len(documents))
			if t.Save != nil {
				t.Save(better.Bytes)
			}
		}
		result <- better
	})
}

// Take takes the result of a training that has ended. raw is the size of the open segment: if
// it has grown too large without a dictionary, take waits for the training.
func (t *Trainer) Take(raw uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.mu.result == nil {
		return
	}
	var better *Dictionary
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
