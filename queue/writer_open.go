package queue

import (
	"crypto/rand"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/cockroachdb/errors"

	"docstore/internal/vfs"
	"docstore/queue/codec"
)

// OpenWriter opens the queue in dir for writing, and creates both if necessary. It first
// seals a segment that was left open by a crash.
//
// ErrLocked: another Writer has dir. *CorruptionError: the newest segment is damaged
// before its last commit mark. ErrIncomplete: dir has less than its head states, because
// files were removed or replaced by older copies.
func OpenWriter(dir string, opts *WriterOptions) (*Writer, error) {
	w := &Writer{dir: dir, turn: make(chan struct{}, 1)}
	if opts != nil {
		w.options = *opts
	}
	if err := w.complete(); err != nil {
		return nil, err
	}
	if err := vfs.MakeDir(w.options.FS, dir); err != nil {
		return nil, errors.Wrap(err, "queue: creating the directory")
	}
	lock, err := LockDir(w.options.FS, dir, w.options.Now())
	if err != nil {
		return nil, err
	}
	w.lock = lock
	head, err := w.restore()
	if errors.Is(err, fs.ErrNotExist) { // removed by a compaction since the listing
		head, err = w.restore()
	}
	if err == nil && head.Highest > 0 {
		err = head.save(true)
	}
	if err != nil {
		lock.Close()
		return nil, errors.Wrapf(err, "queue: opening %s for writing", dir)
	}
	w.pipeline = startPipeline(head, &w.options, w.describe)
	return w, nil
}

// complete validates the options and sets the defaults.
func (w *Writer) complete() error {
	o := &w.options
	if o.FS == nil {
		o.FS = vfs.OS
	}
	if o.Codec == "" && o.Group != nil {
		o.Codec = o.Group.codec.Name
	} else if o.Codec == "" {
		o.Codec = DefaultCodec
	}
	if o.BlockBytes == 0 {
		o.BlockBytes = DefaultBlockBytes
	}
	if o.SegmentBytes == 0 {
		o.SegmentBytes = DefaultSegmentBytes
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.headTime == nil {
		o.headTime = o.Now
	}
	if o.newQueueID == nil {
		o.newQueueID = randomQueueID
	}
	if o.dictionaryBytes == 0 {
		o.dictionaryBytes = defaultDictionaryBytes
	}
	var faults []error
	if o.BlockBytes < 0 || o.BlockBytes > MaxBlockBytes {
		faults = append(faults, fmt.Errorf("queue: BlockBytes is %d, at most %d are allowed", o.BlockBytes, MaxBlockBytes))
	}
	if o.SegmentBytes < MinSegmentBytes || o.SegmentBytes > MaxSegmentBytes {
		faults = append(faults, fmt.Errorf("queue: SegmentBytes is %d, it must be from %d to %d", o.SegmentBytes, MinSegmentBytes, int64(MaxSegmentBytes)))
	}
	if o.SegmentAge < 0 {
		faults = append(faults, fmt.Errorf("queue: SegmentAge is %v", o.SegmentAge))
	}
	c, err := codec.ByName(o.Codec)
	if err != nil {
		faults = append(faults, err)
	} else {
		w.codec = c
		w.plain, err = c.NewEncoder(nil)
		faults = append(faults, err)
	}
	if o.Group != nil {
		w.trainer = o.Group.trainer
		if w.codec.ID != o.Group.codec.ID {
			faults = append(faults, fmt.Errorf("queue: Codec is %s, and that of the Group %s", o.Codec, o.Group.codec.Name))
		}
	} else {
		w.trainer = newTrainer(w.codec, o.dictionaryBytes, w.dir, o.Logger)
	}
	return errors.Join(faults...)
}

func randomQueueID() (id [16]byte, err error) {
	_, err = rand.Read(id[:])
	return id, err
}

// LockDir locks a directory as a Writer does, for a program that writes several queues in it.
// ErrLocked: another one has it.
func LockDir(fsys vfs.FS, dir string, now time.Time) (io.Closer, error) {
	return lockFile(fsys, dir, lockName, now)
}

func lockFile(fsys vfs.FS, dir, name string, now time.Time) (io.Closer, error) {
	lock, err := fsys.Lock(filepath.Join(dir, name), vfs.Holder(now))
	var locked *vfs.LockedError
	if errors.As(err, &locked) {
		by := "by another process"
		if locked.Holder != "" {
			by = "by " + locked.Holder
		}
		return nil, &markedError{mark: ErrLocked, detail: dir + ", " + by}
	}
	return lock, errors.Wrap(err, "queue: locking the directory")
}
