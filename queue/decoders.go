package queue

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
)

// DecoderCache caches decoders with their dictionaries, up to a number of bytes. Readers
// and Decoders may share one, also those of different queues, because a dictionary is
// identified by the hash of its bytes. A lookup takes no lock.
type DecoderCache struct {
	maxBytes int64
	clock    atomic.Int64                                  // number of decoders ever cached
	current  atomic.Pointer[map[decoderKey]*cachedDecoder] // immutable; replaced as a whole
	mu       struct {
		sync.Mutex // also guards the replacement of current
		bytes      int64
	}
}

type decoderKey struct {
	codec      codecID
	dictionary DictionaryHash
}

// cachedDecoder is a decoder and the time, by the clock, of its last use.
type cachedDecoder struct {
	decoder decoder
	bytes   int64
	used    atomic.Int64
}

// NewDecoderCache returns a cache of up to maxBytes. It keeps at least one decoder.
func NewDecoderCache(maxBytes int64) *DecoderCache {
	c := &DecoderCache{maxBytes: maxBytes}
	c.current.Store(&map[decoderKey]*cachedDecoder{})
	return c
}

// Bytes returns the memory of the cached decoders.
func (c *DecoderCache) Bytes() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.bytes
}

// get returns a cached decoder, or nil.
func (c *DecoderCache) get(key decoderKey) decoder {
	kept := (*c.current.Load())[key]
	if kept == nil {
		return nil
	}
	if now := c.clock.Load(); kept.used.Load() != now {
		kept.used.Store(now)
	}
	return kept.decoder
}

// keep makes the decoder for a dictionary and caches it. It evicts the least recently
// used ones.
func (c *DecoderCache) keep(key decoderKey, content []byte) (decoder, error) {
	codec, err := codecByID(key.codec)
	if err != nil {
		return nil, err
	}
	decoder, err := codec.newDecoder(content)
	if err != nil {
		return nil, err
	}
	kept := &cachedDecoder{decoder: decoder, bytes: int64(len(content)) + codec.decoderBytes}
	c.mu.Lock()
	defer c.mu.Unlock()
	next := maps.Clone(*c.current.Load())
	if there := next[key]; there != nil {
		return there.decoder, nil
	}
	c.mu.bytes += kept.bytes
	for c.mu.bytes > c.maxBytes && len(next) > 0 {
		var oldest decoderKey
		var there *cachedDecoder
		for k, candidate := range next {
			if there == nil || candidate.used.Load() < there.used.Load() {
				oldest, there = k, candidate
			}
		}
		delete(next, oldest)
		c.mu.bytes -= there.bytes
	}
	kept.used.Store(c.clock.Load())
	c.clock.Add(1) // later uses are newer
	next[key] = kept
	c.current.Store(&next)
	return decoder, nil
}

// of returns the decoder for the documents of a file.
func (c *DecoderCache) of(s *segmentFile) (decoder, error) {
	key := decoderKey{s.header.codec, s.header.dictionary.hash}
	if d := c.get(key); d != nil {
		return d, nil
	}
	if _, err := codecByID(key.codec); err != nil {
		return nil, err
	}
	content, err := s.dictionary()
	if err != nil {
		return nil, err
	}
	d, err := c.keep(key, content)
	if err != nil {
		return nil, s.corruption(headerBytes, err)
	}
	return d, nil
}

// Decoders decode documents in their stored form where the segments are not available.
// They fetch a dictionary when a document first needs it, once for concurrent calls,
// verify it by its hash, and cache it. They are safe for concurrent use; with a cached
// dictionary Decode takes no lock.
type Decoders struct {
	cache *DecoderCache
	fetch func(context.Context, DictionaryHash) ([]byte, error)
	mu    struct {
		sync.Mutex
		pending map[decoderKey]*pendingDecoder
	}
}

// pendingDecoder is a decoder that a call of Decode is making.
type pendingDecoder struct {
	done    chan struct{} // closed when the fields below are set
	decoder decoder
	err     error
}

// NewDecoders returns Decoders that use the cache. fetch returns the dictionary with the
// hash; Decode wraps its errors.
func NewDecoders(cache *DecoderCache, fetch func(context.Context, DictionaryHash) ([]byte, error)) *Decoders {
	d := &Decoders{cache: cache, fetch: fetch}
	d.mu.pending = make(map[decoderKey]*pendingDecoder)
	return d
}

// Decode appends the document to dst. On any error it returns dst unchanged:
// ErrUnknownCodec if this build lacks the codec, ErrNoDictionary if the dictionary is not
// available, the error of ctx while waiting for it, or ErrCorrupt if the stored bytes do
// not decode.
func (d *Decoders) Decode(ctx context.Context, dst []byte, s Stored) ([]byte, error) {
	if s.raw() {
		return append(dst, s.document()...), nil
	}
	decoder, err := d.get(ctx, decoderKey{s.codec, s.Dictionary})
	if err != nil {
		return dst, err
	}
	e := entry{rawAndFlags: s.rawAndFlags}
	out, err := decoder.decode(dst, s.document(), e.rawBytes())
	if err != nil {
		return dst, &markedError{mark: ErrCorrupt, detail: "a document's stored form", reason: err}
	}
	return out, nil
}

// get returns a decoder. The first call that needs it makes it; concurrent calls wait.
func (d *Decoders) get(ctx context.Context, key decoderKey) (decoder, error) {
	for {
		if kept := d.cache.get(key); kept != nil {
			return kept, nil
		}
		d.mu.Lock()
		pending := d.mu.pending[key]
		if pending == nil && d.cache.get(key) != nil { // made since the first lookup
			d.mu.Unlock()
			continue
		}
		if pending == nil {
			pending = &pendingDecoder{done: make(chan struct{}), err: errNotMade}
			d.mu.pending[key] = pending
			d.mu.Unlock()
			d.make(ctx, key, pending)
			return pending.decoder, pending.err
		}
		d.mu.Unlock()
		select {
		case <-pending.done:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if pending.err == nil {
			return pending.decoder, nil
		}
		if !errors.Is(pending.err, context.Canceled) && !errors.Is(pending.err, context.DeadlineExceeded) {
			return nil, pending.err
		}
		// Only the context of the call that made it has ended: try again.
	}
}

// errNotMade is the error of waiting calls if making the decoder panics.
var errNotMade = errors.New("queue: decoder was not made")

// make makes a decoder, for all calls that wait for it.
func (d *Decoders) make(ctx context.Context, key decoderKey, pending *pendingDecoder) {
	defer func() {
		d.mu.Lock()
		delete(d.mu.pending, key)
		d.mu.Unlock()
		close(pending.done)
	}()
	if _, err := codecByID(key.codec); err != nil {
		pending.err = err
		return
	}
	var content []byte
	var err error
	if key.dictionary != (DictionaryHash{}) {
		if content, err = d.dictionary(ctx, key.dictionary); err != nil {
			pending.err = err
			return
		}
	}
	pending.decoder, err = d.cache.keep(key, content)
	if pending.err = err; err != nil {
		pending.err = &markedError{mark: ErrNoDictionary, detail: key.dictionary.String(), reason: err}
	}
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
		err = fmt.Errorf("the fetched bytes have the hash %s", hashDictionary(content))
	}
	if err != nil {
		return nil, &markedError{mark: ErrNoDictionary, detail: hash.String(), reason: err}
	}
	return content, nil
}
