package queue

import (
	"fmt"

	"github.com/cockroachdb/errors"
)

// How dictionaries come about. A segment begins with the dictionary there is, and
// a better one is trained in the background, from a sample of the documents that
// went by, for the segment after. That delays no document; but before the first
// dictionary of a queue, somebody who writes very fast is held up once, for what
// is left of the twentieth of a second that the training takes, rather than let
// run on for long without one (patienceShare).
const (
	// defaultDictionaryBytes is the size trained to; s2 takes no more.
	defaultDictionaryBytes = 64 << 10
	// dictionaryShare: a dictionary stands in each segment that uses it, so it
	// is worth its place only where the documents are many times its size.
	dictionaryShare = 16
	// dictionaryGainPercent: a new dictionary has to store this much less than
	// the one in use, or that one stays: readers keep one in memory, not two.
	dictionaryGainPercent = 3
	// sampleShare: so many times the dictionary's size are sampled.
	sampleShare = 16
	// firstShare: a queue's first dictionary is trained when so many times its
	// size have gone by: it is smaller and half as long in training as the next
	// one, and stores a thirtieth more, but far less than none at all.
	firstShare = 8
	// maxFruitless: there is a training in 2^maxFruitless segments at least.
	maxFruitless = 6
	// patienceShare: a segment without a dictionary grows to so many times the
	// size of one while the first is being trained; then the training is waited
	// for.
	patienceShare = 2 * dictionaryShare
	// maxSampleDocumentBytes: a longer document would fill the sample by itself.
	maxSampleDocumentBytes = 16 << 10
	// minSampleDocuments: from fewer there is nothing to learn.
	minSampleDocuments = 16
)

var (
	errBadDictionary  = errors.New("dictionary is not valid for its codec")
	errSampleTooSmall = errors.New("sample is too small to train from")
)

// dictionary is a trained dictionary and the encoder that uses it.
type dictionary struct {
	bytes   []byte
	hash    DictionaryHash
	encoder encoder
	sampled rewriteRun // the segments whose documents it was made of, see segmentHeader
}

func newDictionary(c codec, content []byte) (*dictionary, error) {
	enc, err := c.newEncoder(content)
	if err != nil {
		return nil, err
	}
	return &dictionary{bytes: content, hash: hashDictionary(content), encoder: enc}, nil
}

// sample keeps documents spread evenly over all that went by: each stride-th of
// them, and whenever it is full it drops every other one and doubles the stride.
type sample struct {
	limit     int        // bytes
	from      rewriteRun // the segments that the documents are of
	documents [][]byte
	bytes     int
	stride    int
	skip      int // documents to pass before the next one is kept
}

func newSample(limit int) *sample { return &sample{limit: limit, stride: 1} }

// add takes the next document, which stands in the segment.
func (s *sample) add(n SegmentID, document []byte) {
	if s.from.first == 0 {
		s.from.first = n
	}
	s.from.last = n
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

// improve trains a dictionary from a sample and returns it if it is worth more
// than the one in use, which may be empty, and nil otherwise. It learns from every
// other document and compares by the rest.
func improve(c codec, inUse []byte, documents [][]byte, size int) (better *dictionary, err error) {
	defer func() {
		// The trainer is a library fed with whatever people store. What it
		// cannot take must not end the process: go on with what there is.
		if p := recover(); p != nil {
			better, err = nil, errors.Newf("training a dictionary: %v", p)
		}
	}()
	if len(documents) < minSampleDocuments {
		return nil, errSampleTooSmall
	}
	var learn, compare [][]byte
	for i, d := range documents {
		if i%2 == 0 {
			learn = append(learn, d)
		} else {
			compare = append(compare, d)
		}
	}
	content, err := c.train(learn, size)
	if err != nil {
		return nil, errors.Wrap(err, "training a dictionary")
	}
	if len(content) > maxDictionaryBytes {
		return nil, fmt.Errorf("trained dictionary has %d bytes, more than %d", len(content), maxDictionaryBytes)
	}
	trained, err := newDictionary(c, content)
	if err != nil {
		return nil, errors.Wrap(err, "using a trained dictionary")
	}
	before, err := c.newEncoder(inUse)
	if err != nil {
		return nil, err
	}
	if storedBytes(trained.encoder, compare)*100 > storedBytes(before, compare)*(100-dictionaryGainPercent) {
		return nil, nil
	}
	return trained, nil
}

// storedBytes is what the documents take with the encoder.
func storedBytes(enc encoder, documents [][]byte) int {
	var total int
	var out []byte
	for _, d := range documents {
		out, _ = appendEncoded(enc, out[:0], d)
		total += len(out)
	}
	return total
}
