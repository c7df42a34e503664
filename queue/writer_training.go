package queue

// wantsDictionary reports whether the open segment, which has no dictionary, has reached
// the size for one and one is ready. Then the next segment begins early. So the first
// documents of a queue do not wait for a dictionary, and small segments have none.
func (w *Writer) wantsDictionary() bool {
	s, d := w.mu.segment, w.mu.dictionary
	return s.dictionary == nil && d != nil && s.raw >= dictionaryShare*uint64(len(d.bytes))
}

// train starts the training of a dictionary in the background, if the sample is large
// enough and no training is running.
func (w *Writer) train() {
	size := w.options.dictionaryBytes
	share := int64(sampleShare)
	if w.mu.dictionary == nil {
		share = firstShare
	}
	if size < 0 || w.codec.train == nil || w.mu.result != nil || w.mu.sampled < share*int64(size) || w.mu.closed {
		return // a closing Writer would not use it
	}
	var inUse []byte
	if w.mu.dictionary != nil {
		inUse = w.mu.dictionary.bytes
	}
	documents, from := w.mu.sample.documents, w.mu.sample.from
	w.mu.sample, w.mu.sampled = newSample(sampleShare*size), 0
	result := make(chan *dictionary, 1)
	w.mu.trained, w.mu.result = true, result
	w.training.Go(func() {
		better, err := trainBetter(w.codec, inUse, documents, size)
		if err != nil {
			w.options.Logger.Warn("no new dictionary", "queue", w.dir, "error", err)
		}
		if better != nil {
			better.sampled = from
			w.options.Logger.Info("new dictionary", "queue", w.dir, "bytes", len(better.bytes), "documents", len(documents))
		}
		result <- better
	})
}

// takeDictionary takes the result of a training that has ended. It waits for it if the
// open segment has grown too large without a dictionary.
func (w *Writer) takeDictionary() {
	if w.mu.result == nil {
		return
	}
	var better *dictionary
	if s := w.mu.segment; w.mu.dictionary == nil && s != nil && s.raw >= patienceShare*uint64(w.options.dictionaryBytes) {
		better = <-w.mu.result
	} else {
		select {
		case better = <-w.mu.result:
		default:
			return
		}
	}
	w.mu.result = nil
	if better != nil {
		w.mu.dictionary, w.mu.fruitless = better, 0
		return
	}
	w.mu.fruitless = min(w.mu.fruitless+1, maxFruitless)
	w.mu.skip = 1<<w.mu.fruitless - 1
}

// trainAfterSegment is train with a backoff: after each training without a gain the
// number of skipped segments doubles. If documents stay alike, a tenth of a second per
// segment would be wasted.
func (w *Writer) trainAfterSegment() {
	if w.mu.skip > 0 {
		w.mu.skip--
		return
	}
	w.train()
}
