package shardset

import (
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	"docstore/internal/vfs"
	"docstore/queue"
	"docstore/queue/shard"
)

const (
	// MaxShards is the maximum number of shards of a Writer.
	MaxShards = 1 << 10

	openBlockBytes     = 16 << 20 // blocks of all shards that are being filled
	minBlockBytes      = openBlockBytes / MaxShards
	parallel           = 16 // shards that are opened, flushed or sealed at a time
	checkpointInterval = 10 * time.Second
)

// ErrIncomplete means that a shard has nothing although it had entries.
var ErrIncomplete = errors.New("shardset: shard is missing")

// Options configure a Writer. Nil and zero values are the defaults.
type Options struct {
	// FS is the file system of the directory. The default is vfs.OS.
	FS vfs.FS
	// Layout is the layout of the collection. If it exists, it must have this one: the error is
	// shard.ErrDiffers. The default is the layout that shard.Read returns.
	Layout shard.Layout
	// Codec, SegmentBytes and SegmentAge are those of queue.WriterOptions, for each shard.
	Codec        string
	SegmentBytes int64
	SegmentAge   time.Duration
	// Synced is that of queue.WriterOptions. It may be called by several goroutines at a time.
	Synced func(took time.Duration)
	// Logger logs recoveries and new dictionaries. The default discards them.
	Logger *slog.Logger
	// Now is the clock. Any goroutine may call it. The default is time.Now.
	Now func() time.Time
}

// blockBytes returns the size of the blocks of so many shards.
func blockBytes(shards int) int {
	return min(max(openBlockBytes/shards, minBlockBytes), queue.DefaultBlockBytes)
}

// Open opens the collection in dir for writing, and creates it if necessary.
//
// ErrIncomplete: a shard was removed. Other errors are those of queue.OpenWriter, shard.Read and
// shard.Write.
func Open(dir string, opts *Options) (*Writer, error) {
	w := &Writer{dir: dir}
	if opts != nil {
		w.options = *opts
	}
	w.options.complete()
	if err := w.open(); err != nil {
		return nil, errors.Join(err, w.release())
	}
	w.mu.checked = w.options.Now()
	return w, nil
}

func (o *Options) complete() {
	if o.FS == nil {
		o.FS = vfs.OS
	}
	if o.Codec == "" {
		o.Codec = queue.DefaultCodec
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
}

// open opens the shards. Those of one shard need nothing else.
func (w *Writer) open() (err error) {
	if w.layout = w.options.Layout; w.layout == (shard.Layout{}) {
		if w.layout, err = shard.Read(w.options.FS, w.dir); err != nil {
			return err
		}
	}
	if w.layout.Shards > MaxShards {
		return fmt.Errorf("shardset: %d shards: a writer has at most %d", w.layout.Shards, MaxShards)
	}
	if w.layout.Shards == 1 {
		if err := shard.Write(w.options.FS, w.dir, w.layout); err != nil {
			return err
		}
		w.shards = make([]*queue.Writer, 1)
		return w.openShard(0)
	}
	if err := w.prepare(); err != nil {
		return err
	}
	w.shards = make([]*queue.Writer, w.layout.Shards)
	w.mu.open = make([]bool, w.layout.Shards)
	if err := w.each(nil, w.openShard); err != nil {
		return err
	}
	return w.restoreCursors()
}

// prepare locks the directory of several shards, and makes what they share.
func (w *Writer) prepare() error {
	fsys := w.options.FS
	if err := vfs.MakeDir(fsys, w.dir); err != nil {
		return fmt.Errorf("shardset: creating the directory: %w", err)
	}
	names, err := fsys.List(w.dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		if _, ok := queue.ParseFileName(name); ok {
			return fmt.Errorf("%w: %s has one shard, with %s; append to it without shards, or use another directory", shard.ErrDiffers, w.dir, name)
		}
	}
	if w.lock, err = queue.LockDir(fsys, w.dir, w.options.Now()); err != nil {
		return err
	}
	if err := shard.Write(fsys, w.dir, w.layout); err != nil {
		return err
	}
	w.group, err = queue.NewWriterGroup(&queue.WriterGroupOptions{
		Codec:          w.options.Codec,
		Dictionary:     readDictionary(fsys, w.dir, w.options.Codec, w.options.Logger),
		SaveDictionary: w.saveDictionary,
		Logger:         w.options.Logger,
	})
	return err
}

func (w *Writer) openShard(i int) (err error) {
	w.shards[i], err = queue.OpenWriter(w.Dir(i), &queue.WriterOptions{
		FS:           w.options.FS,
		Codec:        w.options.Codec,
		BlockBytes:   blockBytes(w.layout.Shards),
		SegmentBytes: w.options.SegmentBytes,
		SegmentAge:   w.options.SegmentAge,
		Group:        w.group,
		Synced:       w.options.Synced,
		Logger:       w.options.Logger,
		Now:          w.options.Now,
	})
	return err
}

// restoreCursors sets the cursor of each shard to that of the checkpoint if it applies.
func (w *Writer) restoreCursors() error {
	c, err := readCheckpoint(w.options.FS, w.dir, w.layout.Shards)
	if errors.Is(err, errDamaged) {
		w.options.Logger.Warn("the checkpoint is damaged; more of the input may be read again", "error", err)
	} else if err != nil {
		return err
	}
	for i, s := range w.shards {
		if c != nil && c.Ends[i] != (end{}) && s.End().IsZero() {
			return fmt.Errorf("%w: %s has no entries, but it had some; restore it, or remove %s to append them from the input",
				ErrIncomplete, w.Dir(i), filepath.Join(w.dir, checkpointName))
		}
		s.SetCursor(c.cursorOf(i, s.End(), s.Cursor()))
	}
	return nil
}

// each calls fn for the chosen shards, nil: all, up to parallel at a time. It returns one of
// the errors.
func (w *Writer) each(chosen []bool, fn func(i int) error) error {
	var g errgroup.Group
	g.SetLimit(parallel)
	for i := range w.shards {
		if chosen == nil || chosen[i] {
			g.Go(func() error { return fn(i) })
		}
	}
	return g.Wait()
}

// release closes the shards that are open and what they share, and unlocks the directory.
func (w *Writer) release() error {
	err := w.each(nil, func(i int) error {
		if w.shards[i] == nil {
			return nil
		}
		return w.shards[i].Close()
	})
	if w.group != nil {
		w.group.Close()
	}
	if w.lock != nil {
		if unlocking := w.lock.Close(); err == nil {
			err = unlocking
		}
	}
	return err
}
