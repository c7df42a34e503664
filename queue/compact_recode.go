package queue

import (
	"context"
	"time"

	"docstore/queue/codec"
)

// transcoder encodes documents again, without the dictionary of their file.
type transcoder struct {
	codec   codec.Codec
	encoder codec.Encoder
	from    *segmentFile // the file of decoder
	decoder codec.Decoder
	raw     []byte // buffer for an uncompressed document
	stored  []byte // buffer for the encoded document
}

// decode returns the uncompressed document, valid until the next call.
func (t *transcoder) decode(s *segmentFile, e *entry, document []byte) ([]byte, error) {
	if e.storedRaw() {
		return document, nil
	}
	if t.from != s {
		content, err := s.dictionary()
		if err != nil {
			return nil, err
		}
		if t.decoder, err = t.codec.NewDecoder(content); err != nil {
			return nil, err
		}
		t.from = s
	}
	var err error
	t.raw, err = t.decoder.Decode(t.raw[:0], document, e.rawBytes())
	return t.raw, err
}

// recode returns the document in its new encoding, valid until the next call, with its
// length and flags.
func (t *transcoder) recode(s *segmentFile, e *entry, document []byte) (stored []byte, rawAndFlags uint32, err error) {
	raw, err := t.decode(s, e, document)
	if err != nil {
		return nil, 0, err
	}
	rawAndFlags = uint32(len(raw))
	var storedRaw bool
	if t.stored, storedRaw = appendEncoded(t.encoder, t.stored[:0], raw); storedRaw {
		rawAndFlags |= flagStoredRaw
	}
	return t.stored, rawAndFlags, nil
}

// train trains the dictionary of a rewrite from the documents that it keeps, so that it
// contains nothing of any other. It returns none if there are too few documents.
func (w *rewriter) train(ctx context.Context, id codec.ID) ([]byte, error) {
	c, err := codec.ByID(id)
	if err != nil {
		return nil, err
	}
	w.coder = &transcoder{codec: c}
	size := w.options.dictionaryBytes
	documents, bytes := newSample(sampleShare*size), 0
	err = w.eachBlock(ctx, w.run, func(s *segmentFile, b *block, at Address, offset int64) error {
		return w.eachKept(s, b, at, offset, func(place Address, e *entry, id, document []byte, _ time.Time) error {
			if e.deleted() || e.lost() {
				return nil
			}
			raw, err := w.coder.decode(s, e, document)
			if err != nil {
				return s.damagedEntry(b, e, offset, id, err)
			}
			documents.add(place.Segment, raw)
			bytes += len(raw)
			return nil
		})
	})
	if err != nil {
		return nil, err
	}
	w.coder.from = nil // the files are reopened
	var content []byte
	if bytes >= dictionaryShare*size {
		better, err := trainBetter(c, nil, documents.documents, size)
		if err != nil {
			w.options.Logger.Warn("rewriting without a dictionary", "reason", err)
		}
		if better != nil {
			content = better.bytes
		}
	}
	w.coder.encoder, err = c.NewEncoder(content)
	return content, err
}
