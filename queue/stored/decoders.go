package stored

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"

	"docstore/queue/codec"
)

// DecoderCache caches decoders with their dictionaries, up to a number of bytes. Readers
// and Decoders may share one, also those of different queues, because a dictionary is
// identified by the hash of its bytes. A lookup takes no lock.
type DecoderCache struct {
	maxBytes int64
	clock    atomic.Int64                           // number of decoders ever cached
	current  atomic.Pointer[map[Key]*cachedDecoder] // immutable; replaced as a whole
	mu       struct {
		sync.Mutex // also guards the replacement of current
		bytes      int64
	}
}

// Key identifies a decoder.
type Key struct {
	Codec      codec.ID
	Dictionary codec.DictionaryHash // zero: none
}

// cachedDecoder is a decoder and the time, by the clock, of its last use.
type cachedDecoder struct {
	decoder codec.Decoder
	bytes   int64
	used    atomic.Int64
}

// NewDecoderCache returns a cache of up to maxBytes. It keeps at least one decoder.
func NewDecoderCache(maxBytes int64) *DecoderCache {
	c := &DecoderCache{maxBytes: maxBytes}
	c.current.Store(&map[Key]*cachedDecoder{})
	return c
}

// Bytes returns the memory of the cached decoders.
func (c *DecoderCache) Bytes() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.bytes
}

// Get returns a cached decoder, or nil.
func (c *DecoderCache) Get(k Key) codec.Decoder {
	kept := (*c.current.Load())[k]
	if kept == nil {
		return nil
	}
	if now := c.clock.Load(); kept.used.Load() != now {
		kept.used.Store(now)
	}
	return kept.decoder
}

// Keep makes the decoder for a dictionary and caches it. It evicts the least recently
// used ones.
func (c *DecoderCache) Keep(k Key, content []byte) (codec.Decoder, error) {
	made, err := codec.ByID(k.Codec)
	if err != nil {
		return nil, err
	}
	decoder, err := made.NewDecoder(content)
	if err != nil {
		return nil, err
	}
	kept := &cachedDecoder{decoder: decoder, bytes: int64(len(content)) + made.DecoderBytes}
	c.mu.Lock()
	defer c.mu.Unlock()
	next := maps.Clone(*c.current.Load())
	if there := next[k]; there != nil {
		return there.decoder, nil
	}
	c.mu.bytes += kept.bytes
	for c.mu.bytes > c.maxBytes && len(next) > 0 {
		var oldest Key
		var there *cachedDecoder
		for other, candidate := range next {
			if there == nil || candidate.used.Load() < there.used.Load() {
				oldest, there = other, candidate
			}
		}
		delete(next, oldest)
		c.mu.bytes -= there.bytes
	}
	kept.used.Store(c.clock.Load())
	c.clock.Add(1) // later uses are newer
	next[k] = kept
	c.current.Store(&next)
	return decoder, nil
}

// Decoders decode documents in their stored form where the segments are not available.
// They fetch a dictionary when a document first needs it, once for concurrent calls,
// verify it by its hash, and cache it. They are safe for concurrent use; with a cached
// dictionary Decode takes no lock.
type Decoders struct {
	cache *DecoderCache
	fetch func(context.Context, codec.DictionaryHash) ([]byte, error)
	mu    struct {
		sync.Mutex
		pending map[Key]*pendingDecoder
	}
}

// pendingDecoder is a decoder that a call of Decode is making.
type pendingDecoder struct {
	done    chan struct{} // closed when the fields below are set
	decoder codec.Decoder
	err     error
}

// NewDecoders returns Decoders that use the cache. fetch returns the dictionary with the
// hash; Decode wraps its errors.
func NewDecoders(cache *DecoderCache, fetch func(context.Context, codec.DictionaryHash) ([]byte, error)) *Decoders {
	d := &Decoders{cache: cache, fetch: fetch}
	d.mu.pending = make(map[Key]*pendingDecoder)
	return d
}

// Decode appends the document to dst. On any error it returns dst unchanged:
// codec.ErrUnknown if this build lacks the codec, ErrNoDictionary if the dictionary is not
// available, the error of ctx while waiting for it, or ErrCorrupt if the stored bytes do
// not decode.
func (d *Decoders) Decode(ctx context.Context, dst []byte, f Form) ([]byte, error) {
	if f.raw() {
		return append(dst, f.document()...), nil
	}
	decoder, err := d.get(ctx, Key{f.codec, f.Dictionary})
	if err != nil {
		return dst, err
	}
	out, err := decoder.Decode(dst, f.document(), f.RawBytes())
	if err != nil {
		return dst, fmt.Errorf("%w: a document's stored form: %w", ErrCorrupt, err)
	}
	return out, nil
}

// get returns a decoder. The first call that needs it makes it; concurrent calls wait.
func (d *Decoders) get(ctx context.Context, k Key) (codec.Decoder, error) {
	for {
		if kept := d.cache.Get(k); kept != nil {
			return kept, nil
		}
		d.mu.Lock()
		pending := d.mu.pending[k]
		if pending == nil && d.cache.Get(k) != nil { // made since the first lookup
			d.mu.Unlock()
			continue
		}
		if pending == nil {
			pending = &pendingDecoder{done: make(chan struct{}), err: errNotMade}
			d.mu.pending[k] = pending
			d.mu.Unlock()
			d.make(ctx, k, pending)
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
func (d *Decoders) make(ctx context.Context, k Key, pending *pendingDecoder) {
	defer func() {
		d.mu.Lock()
		delete(d.mu.pending, k)
		d.mu.Unlock()
		close(pending.done)
	}()
	if _, err := codec.ByID(k.Codec); err != nil {
		pending.err = err
		return
	}
	var content []byte
	var err error
	if k.Dictionary != (codec.DictionaryHash{}) {
		if content, err = d.dictionary(ctx, k.Dictionary); err != nil {
			pending.err = err
			return
		}
	}
	pending.decoder, err = d.cache.Keep(k, content)
	if pending.err = err; err != nil {
		pending.err = fmt.Errorf("%w: %s: %w", ErrNoDictionary, k.Dictionary, err)
	}
}

// dictionary fetches and verifies a dictionary.
func (d *Decoders) dictionary(ctx context.Context, hash codec.DictionaryHash) ([]byte, error) {
	content, err := d.fetch(ctx, hash)
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil:
	case len(content) > codec.MaxDictionaryBytes:
		err = fmt.Errorf("it has %d bytes, more than %d", len(content), codec.MaxDictionaryBytes)
	case codec.HashDictionary(content) != hash:
		err = fmt.Errorf("the fetched bytes have the hash %s", codec.HashDictionary(content))
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrNoDictionary, hash, err)
	}
	return content, nil
}
