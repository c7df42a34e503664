package queue

import (
	"log/slog"
	"time"

	"docstore/internal/vfs"
	"docstore/queue/codec"
	_ "docstore/queue/codec/lzo" // so that every queue can be read
	"docstore/queue/internal/segment"
	"docstore/queue/stored"
)

// Limits. Each is checked before a write and after a read.
const (
	MaxIDBytes       = segment.MaxIDBytes       // 1 KiB: an id
	MaxDocumentBytes = segment.MaxDocumentBytes // 16 MiB: a document
	MaxBlockBytes    = segment.MaxBlockBytes    // 1 MiB: ids and documents of a block with more than one entry
	MaxBlockEntries  = segment.MaxBlockEntries  // 65,535 entries of a block
	MaxCursorBytes   = segment.MaxCursorBytes   // 4 KiB: a cursor
	MinSegmentBytes  = 1 << 10                  // WriterOptions.SegmentBytes: a smaller segment is little more than header and footer
	MaxSegmentBytes  = segment.MaxSegmentBytes  // 4 GiB: a segment file; every offset in it fits in 32 bits
)

// Defaults of the options.
const (
	DefaultCodec        = "s2"
	DefaultBlockBytes   = 256 << 10
	DefaultSegmentBytes = 64 << 20
	DefaultPollInterval = 250 * time.Millisecond
	DefaultDecoderBytes = 64 << 20
)

// Record is a document or a delete to be appended.
type Record struct {
	ID       []byte // 1 to MaxIDBytes bytes
	Document []byte // 0 to MaxDocumentBytes bytes
	// Expires is the time at which the document expires, with a resolution of a second;
	// the zero time means never. Tail reports it, Usage and Compact count an expired
	// document as dead, and fetches ignore it.
	Expires time.Time
	// Delete deletes the id. Document and Expires must be zero.
	Delete bool
	// Cursor is set together with the entry, as by SetCursor, so that no Flush of another
	// goroutine comes in between. Nil keeps the current cursor.
	Cursor []byte
}

// Entry describes a document or delete to the function passed to Tail. ID is valid until
// that function returns.
type Entry struct {
	ID          []byte
	Address     Address
	Next        Position  // resume here after this entry
	Deleted     bool      // the id was deleted; there is no document
	Expires     time.Time // zero: never
	Appended    time.Time // when the first entry of its block was appended
	StoredBytes int       // the compressed size of the document
	Place       Place     // of the document; zero for a delete
	More        bool      // another entry follows at once; false: commit now
}

// WriterOptions configure a Writer. Nil and zero values are the defaults.
type WriterOptions struct {
	// FS is the file system of the directory. The default is vfs.OS.
	FS vfs.FS
	// Codec compresses the documents: one of codec.Names(). The default is
	// DefaultCodec.
	Codec string
	// BlockBytes is the size in ids and documents at which a block is closed, up to
	// MaxBlockBytes. The default is DefaultBlockBytes.
	BlockBytes int
	// SegmentBytes is the file size at which a segment is sealed, give or take a block,
	// from MinSegmentBytes to MaxSegmentBytes. The default is DefaultSegmentBytes. A segment
	// is sealed earlier if its uncompressed documents approach MaxSegmentBytes, so that every
	// rewrite of it fits into a file.
	SegmentBytes int64
	// SegmentAge seals a segment when its first entry is this old. Append, Put, Delete
	// and Flush check it; a caller that may stop appending calls Flush from time to time.
	// The default is no limit.
	SegmentAge time.Duration
	// DictionaryBytes is the size of trained dictionaries. The default is 64 KiB; if it is
	// negative, none is trained.
	DictionaryBytes int
	// Group has the resources that the Writer shares with those of other queues. The
	// default is none.
	Group *WriterGroup
	// Synced is called in another goroutine with the duration of each fsync that makes entries
	// durable. The default is to do nothing.
	Synced func(took time.Duration)
	// Logger logs recoveries and new dictionaries. The default discards them.
	Logger *slog.Logger
	// Now is the clock. Any goroutine may call it. The default is time.Now.
	Now func() time.Time
}

// ReaderOptions configure a Reader. Nil and zero values are the defaults.
type ReaderOptions struct {
	// FS is the file system of the directory. The default is vfs.OS.
	FS vfs.FS
	// PollInterval is the interval at which Tail looks for new entries. On Linux, with FS
	// vfs.OS, it also looks when the kernel reports a change. The default is
	// DefaultPollInterval.
	PollInterval time.Duration
	// OnCaughtUp is called in Tail's goroutine each time no entry is pending: at its
	// start, after each entry with More == false, and when the missing segment of the
	// position has arrived and has no new entries.
	OnCaughtUp func(Position)
	// OnRewrite is called in Tail's goroutine before Tail continues at an address in a
	// rewrite: of the entries from there on, those that the rewrite has dropped are not
	// passed to Tail's fn. An error ends Tail.
	OnRewrite func(r Rewrite, from Address) error
	// Logger logs files that were replaced. The default discards them.
	Logger *slog.Logger
	// Decoders caches the decoders with their dictionaries. Readers may share it. The
	// default is a cache of DefaultDecoderBytes.
	Decoders *stored.DecoderCache
}

// SegmentInfo describes a segment in the directory. Of an open segment only committed
// entries count.
type SegmentInfo struct {
	ID              SegmentID
	Last            SegmentID // of the segments that a rewrite replaces; else ID
	Generation      uint32    // of a rewrite; 0: an original
	Sealed          bool      // complete, with a valid footer
	Codec           string
	DictionaryBytes int
	Dictionary      codec.DictionaryHash // zero: none
	Bytes           int64                // the file's size
	Blocks          int64
	Entries         int64 // Documents + Deletes
	Documents       int64
	Deletes         int64
	RawBytes        int64 // the documents as they were appended
	StoredBytes     int64 // the documents as they are stored: the sum of Entry.StoredBytes
	Created         time.Time
	FirstAppended   time.Time // zero: no entries
	LastAppended    time.Time // start of the last block

}
