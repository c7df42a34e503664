package queue

import (
	"log/slog"
	"time"

	"docstore/internal/vfs"
)

// Limits. Each is checked before anything is written and after anything is
// read.
const (
	MaxIDBytes       = 1 << 10   // an id
	MaxDocumentBytes = 16 << 20  // a document
	MaxBlockBytes    = 1 << 20   // ids and documents of a block, unless it holds a single entry
	MaxBlockEntries  = 1<<16 - 1 // entries of a block
	MaxCursorBytes   = 4 << 10   // a cursor
	MinSegmentBytes  = 1 << 10   // WriterOptions.SegmentBytes: a smaller segment is little more than header and footer
	MaxSegmentBytes  = 4 << 30   // a segment file, and so every offset in it fits in 32 bits
)

// Defaults of the options.
const (
	DefaultCodec        = "s2"
	DefaultBlockBytes   = 256 << 10
	DefaultSegmentBytes = 64 << 20
	DefaultPollInterval = 250 * time.Millisecond
	DefaultDecoderBytes = 64 << 20
)

// Record is a document, or a delete, on its way into the queue.
type Record struct {
	ID       []byte // 1 to MaxIDBytes bytes
	Document []byte // 0 to MaxDocumentBytes bytes
	// Expires is when the document stops being served, to the second; the zero
	// time is never. The queue stores and reports it and does nothing else.
	Expires time.Time
	// Delete is the news that there is no document of this id any more. Document
	// and Expires must be zero.
	Delete bool
	// Cursor is SetCursor in one step with the entry: no Flush of another goroutine
	// comes between the two. Nil leaves the cursor as it is.
	Cursor []byte
}

// Entry is what tailing tells of one document or delete. ID is valid until the
// function it was passed to returns.
type Entry struct {
	ID          []byte
	Address     Address
	Next        Position  // go on from here after this entry
	Deleted     bool      // the id was deleted; there is no document
	Expires     time.Time // zero: never
	Appended    time.Time // when the first entry of its block was appended
	StoredBytes int       // the document as it lies in the segment
	More        bool      // another entry waits right behind; false: commit now
}

// WriterOptions say how a queue is written. Nil and zero values are the
// defaults.
type WriterOptions struct {
	// FS is where the directory lies. The default is vfs.OS.
	FS vfs.FS
	// Codec compresses the documents: one of Codecs(). The default is
	// DefaultCodec.
	Codec string
	// BlockBytes is how many bytes of ids and documents close a block, up to
	// MaxBlockBytes. The default is DefaultBlockBytes.
	BlockBytes int
	// SegmentBytes is the size of its file at which a segment is sealed, give
	// or take a block, from MinSegmentBytes to MaxSegmentBytes. The default is
	// DefaultSegmentBytes.
	SegmentBytes int64
	// SegmentAge seals a segment when its first entry is this old. It is looked
	// at by Append, Put, Delete and Flush: who wants it kept while nothing
	// arrives calls Flush from time to time. The default is no limit.
	SegmentAge time.Duration
	// Logger is told of recoveries and new dictionaries. The default is silence.
	Logger *slog.Logger
	// Now is the clock. Any goroutine may call it. The default is time.Now.
	Now func() time.Time

	headTime        func() time.Time         // tests need a clock of the head that does not move Now
	newQueueID      func() ([16]byte, error) // tests need the same one again
	dictionaryBytes int                      // size to train to; 0 is the default, negative is never
}

// ReaderOptions say how a queue is read. Nil and zero values are the defaults.
type ReaderOptions struct {
	// FS is where the directory lies. The default is vfs.OS.
	FS vfs.FS
	// PollInterval is how often Tail looks for more when nothing is waiting. On
	// Linux, with FS vfs.OS, it also looks when the kernel tells of a change.
	// The default is DefaultPollInterval.
	PollInterval time.Duration
	// OnCaughtUp is called from Tail, in its goroutine, each time nothing is
	// waiting any more: at its start, behind each entry with More == false, and when
	// the segment of the position has come, which was away, and has nothing new.
	OnCaughtUp func(Position)
	// Logger is told of files that were replaced. The default is silence.
	Logger *slog.Logger
	// Decoders keeps the dictionaries of the segments. Readers may share it. The
	// default is a cache of DefaultDecoderBytes.
	Decoders *DecoderCache
}

// SegmentInfo describes a segment as it lies in the directory. Of a segment
// that is not sealed, only what is committed counts.
type SegmentInfo struct {
	ID              SegmentID
	Last            SegmentID // of the segments that a rewrite replaces; else ID
	Generation      uint32    // of a rewrite; 0: an original
	Sealed          bool      // complete, with a valid footer
	Codec           string
	DictionaryBytes int
	Bytes           int64 // the file's size
	Blocks          int64
	Entries         int64 // Documents + Deletes
	Documents       int64
	Deletes         int64
	RawBytes        int64 // the documents as they were appended
	StoredBytes     int64 // the documents as they are stored: the sum of Entry.StoredBytes
	Created         time.Time
	FirstAppended   time.Time // zero: no entries
	LastAppended    time.Time // start of the last block

	dictionary DictionaryHash
	sampled    rewriteRun // what the dictionary was made of
	lost       SegmentID  // the first of which a repair has noted losses; 0: none
}
