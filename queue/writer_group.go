package queue

import (
	"errors"
	"log/slog"

	"docstore/queue/codec"
	"docstore/queue/internal/dictionary"
)

// WriterGroup has the resources that the Writers of several queues share, such as the shards
// of one collection: the goroutines that compress, the limit for documents that have yet to be
// written, and the compression dictionary. With it an idle Writer has one goroutine, and does
// not refresh its head file.
//
// The dictionary is trained from documents of all queues of the group. A segment therefore
// does not state the segments that its dictionary was trained from, and CompactOptions.EraseDead
// rewrites each segment with such a dictionary.
type WriterGroup struct {
	codec       codec.Codec
	trainer     *dictionary.Trainer
	compressors *compressors
	pending     *pendingBytes
}

// WriterGroupOptions configure a WriterGroup. Nil and zero values are the defaults.
type WriterGroupOptions struct {
	// Codec compresses the documents of all queues: one of codec.Names(). The default is
	// DefaultCodec.
	Codec string
	// Dictionary is the dictionary that an earlier group of this codec has passed to
	// SaveDictionary. The default is none.
	Dictionary []byte
	// SaveDictionary is called in another goroutine with each new dictionary before it is
	// used. The default is to do nothing.
	SaveDictionary func(content []byte)
	// DictionaryBytes is the size of trained dictionaries. The default is 64 KiB; if it is
	// negative, none is trained.
	DictionaryBytes int
	// Logger logs new dictionaries. The default discards them.
	Logger *slog.Logger
}

// NewWriterGroup returns a group without Writers. It has goroutines until Close.
func NewWriterGroup(opts *WriterGroupOptions) (*WriterGroup, error) {
	var o WriterGroupOptions
	if opts != nil {
		o = *opts
	}
	if o.Codec == "" {
		o.Codec = DefaultCodec
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.DictionaryBytes == 0 {
		o.DictionaryBytes = dictionary.DefaultBytes
	}
	c, err := codec.ByName(o.Codec)
	if err != nil {
		return nil, err
	}
	g := &WriterGroup{codec: c, trainer: dictionary.NewTrainer(c, o.DictionaryBytes, "group", o.Logger)}
	g.trainer.Shared, g.trainer.Save = true, o.SaveDictionary
	if len(o.Dictionary) > 0 && !g.trainer.Off() {
		d, err := dictionary.New(c, o.Dictionary)
		if err != nil || len(o.Dictionary) > codec.MaxDictionaryBytes {
			return nil, errors.Join(codec.ErrBadDictionary, err)
		}
		g.trainer.Use(d)
	}
	g.compressors, g.pending = startCompressors(), newPendingBytes()
	return g, nil
}

// Close ends the goroutines. All Writers of the group must be closed.
func (g *WriterGroup) Close() {
	g.compressors.stop()
	g.trainer.Wait()
}
