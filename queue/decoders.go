package queue

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
)

// Decoders decode documents from their stored form far from the segments. They
// fetch a dictionary when a document first needs it, once however many
// documents wait for it, verify it by its hash, and keep it. Their methods may
// be called from many goroutines at once; once a dictionary is there, Decode
// takes no lock.
type Decoders struct {
	fetch    func(context.Context, DictionaryHash) ([]byte, error)
	maxBytes int
	clock    atomic.Int64                                // counts the decoders ever kept
	current  atomic.Pointer[map[decoderKey]*keptDecoder] // never changed, only replaced
	mu       struct {
		sync.Mutex // guards the replacement of current, too
		bytes      int
		coming     map[decoderKey]*comingDecoder
	}
}

// keptDecoder is a decoder and when, by the clock, it was used last.
type keptDecoder struct {
	decoder decoder
	bytes   int // of its dictionary
	used    atomic.Int64
}

// comingDecoder is a decoder that somebody is making.
type comingDecoder struct {
	done    chan struct{} // closed when the rest is set
	decoder *keptDecoder
	err     error
}

// NewDecoders returns decoders that keep up to maxBytes of dictionaries, and at
// least one. fetch returns the dictionary with the hash, or an error that Decode
// then returns, wrapped.
func NewDecoders(maxBytes int, fetch func(context.Context, DictionaryHash) ([]byte, error)) *Decoders {
	d := &Decoders{fetch: fetch, maxBytes: maxBytes}
	d.current.Store(&map[decoderKey]*keptDecoder{})
	d.mu.coming = make(map[decoderKey]*comingDecoder)
	return d
}

// Decode appends the document to dst. On any error it returns dst unchanged:
// ErrUnknownCodec if this build lacks the codec, ErrNoDictionary if the
// dictionary cannot be had, what ctx says while it is waited for, or ErrCorrupt
// if what is stored does not decode.
func (d *Decoders) Decode(ctx context.Context, dst []byte, s Stored) ([]byte, error) {
	if s.raw() {
		return append(dst, s.document()...), nil
	}
	kept, err := d.get(ctx, decoderKey{s.codec, s.Dictionary})
	if err != nil {
		return dst, err
	}
	e := entry{rawAndFlags: s.rawAndFlags}
	out, err := kept.decoder.decode(dst, s.document(), e.rawBytes())
	if err != nil {
		return dst, &markedError{mark: ErrCorrupt, detail: "a document's stored form", reason: err}
	}
	return out, nil
}

// get returns a decoder, which somebody makes if there is none yet.
func (d *Decoders) get(ctx context.Context, key decoderKey) (*keptDecoder, error) {
	for {
		if kept := (*d.current.Load())[key]; kept != nil {
			if now := d.clock.Load(); kept.used.Load() != now {
				kept.used.Store(now)
			}
			return kept, nil
		}
		d.mu.Lock()
		if (*d.current.Load())[key] != nil {
			d.mu.Unlock()
			continue
		}
		coming := d.mu.coming[key]
		if coming == nil {
			coming = &comingDecoder{done: make(chan struct{}), err: errNotMade}
			d.mu.coming[key] = coming
			d.mu.Unlock()
			d.make(ctx, key, coming)
			return coming.decoder, coming.err
		}
		d.mu.Unlock()
		select {
		case <-coming.done:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if coming.err == nil {
			return coming.decoder, nil
		}
		if !errors.Is(coming.err, context.Canceled) && !errors.Is(coming.err, context.DeadlineExceeded) {
			return nil, coming.err
		}
		// Who made it was called off, which is no reason for us to give up.
	}
}

// errNotMade is what those who wait are told if making a decoder has panicked.
var errNotMade = errors.New("queue: decoder was not made")

// make makes a decoder, for all who wait for it.
func (d *Decoders) make(ctx context.Context, key decoderKey, coming *comingDecoder) {
	defer func() {
		d.mu.Lock()
		delete(d.mu.coming, key)
		if coming.err == nil {
			d.keep(key, coming.decoder)
		}
		d.mu.Unlock()
		close(coming.done)
	}()
	codec, err := codecByID(key.codec)
	if err != nil {
		coming.err = err
		return
	}
	var content []byte
	if key.dictionary != (DictionaryHash{}) {
		if content, err = d.dictionary(ctx, key.dictionary); err != nil {
			coming.err = err
			return
		}
	}
	decoder, err := codec.newDecoder(content)
	if err != nil {
		coming.err = &markedError{mark: ErrNoDictionary, detail: key.dictionary.String(), reason: err}
		return
	}
	coming.decoder, coming.err = &keptDecoder{decoder: decoder, bytes: len(content)}, nil
}

// dictionary fetches and verifies a dictionary.
func (d *Decoders) dictionary(ctx context.Context, hash DictionaryHash) ([]byte, error) {
	content, err := d.fetch(ctx, hash)
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil:
	case len(content) > maxDictionaryBytes:
		err = fmt.Errorf("it has %d bytes, more than %d", len(content), maxDictionaryBytes)
	case hashDictionary(content) != hash:
		err = fmt.Errorf("what came has the hash %s", hashDictionary(content))
	}
	if err != nil {
		return nil, &markedError{mark: ErrNoDictionary, detail: hash.String(), reason: err}
	}
	return content, nil
}

// keep puts a decoder among those kept, and drops the ones not used for longest
// to make room. The mutex must be held.
func (d *Decoders) keep(key decoderKey, kept *keptDecoder) {
	next := maps.Clone(*d.current.Load())
	d.mu.bytes += kept.bytes
	for d.mu.bytes > d.maxBytes && len(next) > 0 {
		var oldest decoderKey
		var there *keptDecoder
		for k, candidate := range next {
			if there == nil || candidate.used.Load() < there.used.Load() {
				oldest, there = k, candidate
			}
		}
		delete(next, oldest)
		d.mu.bytes -= there.bytes
	}
	kept.used.Store(d.clock.Load())
	d.clock.Add(1) // whatever is used from now on is newer
	next[key] = kept
	d.current.Store(&next)
}
