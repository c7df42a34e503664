package queue

import (
	"log/slog"
	"sync"

	"docstore/queue/codec"
)

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
		from = rewriteRun{} // unknown
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

// wantsDictionary reports whether the open segment, which has no dictionary, has reached
// the size for one and one is ready. Then the next segment begins early. So the first
// documents of a queue do not wait for a dictionary, and small segments have none.
func (w *Writer) wantsDictionary() bool {
	s, d := w.mu.segment, w.trainer.current()
	return s.dictionary == nil && d != nil && s.raw >= w.trainer.share()*uint64(len(d.bytes))
}
