package publish

import (
	"bytes"
	"context"
	"crypto/sha256"
	"hash"
	"io"
	"io/fs"
	"math"
	"path/filepath"

	"docstore/internal/vfs"
	"docstore/queue"
	"docstore/queue/bucket"

	"github.com/cockroachdb/errors"
)

// Extension adds the increments of a manifest to the open segment in a directory that has
// the files of the manifest. Readers of the queue may use the directory concurrently. Only
// Sync syncs: after a power loss OpenExtension finds the whole blocks. It is not safe for
// concurrent use.
type Extension struct {
	reader   IncrementReader
	options  Options
	path     string // of the open segment
	base     Ref
	queue    int // the shard
	segment  queue.SegmentID
	number   uint64    // of the last increment that was added; 0: none
	previous Digest    // of its header
	hash     hash.Hash // of the bytes before end
	end      int64     // of the last increment
	size     int64     // of the file: end, or more after an interrupted write
	sealed   bool

	// fits is how many increments are read together, and ahead how many of them may not exist.
	// full: the last Next found all that it looked for, which were not known to exist.
	fits, ahead int
	full        bool
}

// OpenExtension continues with the bytes in the directory, which has the files of a manifest.
// If they are not those of the increments, the error matches ErrDiverged: the directory must
// be made again. m describes the shard with this number.
func OpenExtension(ctx context.Context, r IncrementReader, base Ref, m *Manifest, shard int, dir string, opts *Options) (*Extension, error) {
	e := &Extension{
		reader: r, options: opts.withDefaults(), base: base, queue: shard, segment: m.Heads[0].Sealed + 1, hash: sha256.New(), fits: MaxAhead, ahead: 1,
	}
	e.path = filepath.Join(dir, queue.OpenSegmentName(e.segment))
	file, err := cutOpen(e.options.FS, dir, e.segment)
	if err != nil {
		return nil, err
	}
	if file != nil {
		defer file.Close()
		info, err := file.Stat()
		if err != nil {
			return nil, err
		}
		e.size = info.Size
	}
	last, err := lastWithin(ctx, r, base, shard, e.size)
	if err != nil {
		return nil, err
	}
	if last.Increment == nil {
		return e, nil // there is none, or part of the first one is here
	}
	part := last.Parts[shard]
	if part.To > 0 {
		if _, err := io.Copy(e.hash, io.NewSectionReader(file, 0, part.To)); err != nil {
			return nil, err
		}
	}
	if Digest(e.hash.Sum(nil)) != part.Prefix {
		return nil, errors.Wrapf(ErrDiverged, "%s and increment %d of manifest %d", e.path, last.Number, base.Number)
	}
	e.number, e.previous, e.end, e.sealed = last.Number, last.digest, part.To, last.complete()
	return e, nil
}

// cutOpen opens the file of an open segment for appending, after it has cut bytes that
// are not committed. It returns nil if there is no file with a committed block.
func cutOpen(fsys vfs.FS, dir string, n queue.SegmentID) (vfs.File, error) {
	path := filepath.Join(dir, queue.OpenSegmentName(n))
	file, err := fsys.OpenAppend(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	end, err := committedEnd(fsys, dir, n)
	if err == nil {
		err = file.Truncate(end)
	}
	if err != nil || end == 0 {
		return nil, errors.CombineErrors(err, file.Close())
	}
	return file, nil
}

// committedEnd returns the end of the committed bytes of a segment.
func committedEnd(fsys vfs.FS, dir string, n queue.SegmentID) (int64, error) {
	s, err := queue.OpenGrowing(fsys, dir, n)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, queue.ErrCorrupt):
		return 0, nil
	case err != nil:
		return 0, err
	}
	defer func() { _ = s.Close() }() // it only reads
	end, _, err := s.Advance(queue.MaxSegmentBytes)
	if errors.Is(err, queue.ErrCorrupt) {
		return 0, nil
	}
	return end, err
}

// Sealed reports whether the segment, or that of another shard, is complete: the next manifest
// follows.
func (e *Extension) Sealed() bool { return e.sealed }

// Waiting reports whether an increment exists that was not added.
func (e *Extension) Waiting(ctx context.Context) (bool, error) {
	if e.sealed {
		return false, nil
	}
	_, err := e.reader.ReadHeader(ctx, e.base, e.number+1)
	if errors.Is(err, bucket.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// Number returns the number of the last increment that is here; 0: none.
func (e *Extension) Number() uint64 { return e.number }

// Added is the result of Extension.Next.
type Added struct {
	Last *Increment // the last increment that was added; nil: none
	// End: when Next looked for it, there was no increment after those that are here.
	End bool
	// Behind: more increments exist, or probably exist.
	Behind bool
}

// Next adds increments that exist, at most MaxAhead. All up to known exist: if one of them
// does not, the error matches bucket.ErrNotExist. If all of these are here, Next looks for one
// more, and for more of them while it finds all that it looks for. If the file was changed by
// others, or differs, the error matches ErrDiverged.
func (e *Extension) Next(ctx context.Context, known uint64) (Added, error) {
	if e.sealed {
		return Added{End: true}, nil
	}
	wanted, guessed := min(e.ahead, e.fits), known <= e.number
	if !guessed {
		wanted = int(min(known-e.number, uint64(e.fits)))
	}
	list, end, err := e.reader.ReadIncrements(ctx, e.base, e.number+1, wanted)
	if err != nil {
		return Added{}, err
	}
	var result Added
	for _, i := range list {
		if err := e.add(i); err != nil {
			return result, err
		}
		result.Last = i.Increment
	}
	if end && e.number < known && !e.sealed {
		return result, errors.Wrapf(bucket.ErrNotExist, "increment %d of manifest %d, which has %d, is missing", e.number+1, e.base.Number, known)
	}
	result.End = end || e.sealed
	full := len(list) == wanted
	// Less than wanted before the end: the others were too large.
	result.Behind = !result.End && (e.number < known || guessed && (!full || e.full))
	e.pace(guessed, full, end, len(list))
	return result, nil
}

// pace determines how many increments are read next.
func (e *Extension) pace(guessed, full, end bool, added int) {
	switch {
	case end:
		e.ahead = 1
	case full:
		e.fits = min(2*e.fits, MaxAhead)
		if guessed && e.full {
			e.ahead = min(2*e.ahead, MaxAhead)
		}
	default:
		e.fits = max(added, 1)
	}
	e.full = guessed && full && !end
}

// add verifies an increment and appends its bytes to the file.
func (e *Extension) add(i StoredIncrement) error {
	name := incrementName(e.base, i.Number)
	part, data := i.of(e.queue)
	switch {
	case i.Previous != e.previous:
		return corrupt("%s does not follow increment %d, which has another digest", name, e.number)
	case part.Segment != e.segment || part.From != e.end:
		return corrupt("%s begins at %d of segment %d, want %d of segment %d", name, part.From, part.Segment, e.end, e.segment)
	}
	// After a mismatch, or a failed write that is repeated, the hash begins here again.
	state, err := e.hash.(interface{ MarshalBinary() ([]byte, error) }).MarshalBinary()
	if err != nil {
		return err
	}
	e.hash.Write(data)
	if Digest(e.hash.Sum(nil)) != part.Prefix {
		err = corrupt("%s: its bytes differ from the digest in its header: it is damaged", name)
	} else {
		err = e.write(data)
	}
	if err != nil {
		return errors.CombineErrors(err, e.hash.(interface{ UnmarshalBinary([]byte) error }).UnmarshalBinary(state))
	}
	e.number, e.previous, e.end, e.sealed = i.Number, i.digest, part.To, i.complete()
	return nil
}

// write appends data at e.end of the file. The file may have its first bytes already.
func (e *Extension) write(data []byte) error {
	if len(data) == 0 {
		return nil
	}
	file, err := e.options.FS.OpenAppend(e.path)
	if errors.Is(err, fs.ErrNotExist) && e.end == 0 {
		e.size = 0
		file, err = e.options.FS.Create(e.path)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return errors.Wrapf(ErrDiverged, "%s was removed", e.path)
	}
	if err != nil {
		return err
	}
	return errors.CombineErrors(e.writeTo(file, data), file.Close())
}

func (e *Extension) writeTo(file vfs.File, data []byte) error {
	info, err := file.Stat()
	if err != nil {
		return err
	}
	if info.Size < e.size {
		return errors.Wrapf(ErrDiverged, "%s has %d bytes, want %d", e.path, info.Size, e.size)
	}
	there := make([]byte, min(info.Size-e.end, int64(len(data))))
	if len(there) > 0 {
		if _, err := file.ReadAt(there, e.end); err != nil {
			return err
		}
	}
	if !bytes.Equal(there, data[:len(there)]) {
		return errors.Wrapf(ErrDiverged, "%s at byte %d", e.path, e.end)
	}
	if _, err := file.Write(data[len(there):]); err != nil {
		return err
	}
	e.size = max(info.Size, e.end+int64(len(data)))
	return nil
}

// adopt makes a sealed file from the open segment that increments have left in the
// directory, and reads only the missing bytes from the bucket. It returns false if there is
// no such segment. If the bytes are not those of the file, the error matches ErrDiverged.
func (q *replicaQueue) adopt(ctx context.Context, f File, done *progress) (bool, error) {
	fsys := q.options.FS
	name, _ := queue.ParseFileName(f.Name)
	if name.Generation > 0 {
		return false, nil // a rewrite
	}
	path, open := filepath.Join(q.dir, f.Name), filepath.Join(q.dir, queue.OpenSegmentName(name.First))
	end, err := committedEnd(fsys, q.dir, name.First)
	if end == 0 || err != nil {
		return false, err
	}
	file, err := fsys.OpenAppend(open)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer file.Close()
	local := io.NewSectionReader(file, 0, end)
	if end == f.Size {
		hash := sha256.New()
		if _, err := io.Copy(hash, local); err != nil {
			return false, err
		}
		if Digest(hash.Sum(nil)) != f.Digest {
			return false, errors.Wrapf(ErrDiverged, "%s and the file of the manifest", open)
		}
		done.add(end)
		return true, errors.CombineErrors(file.Sync(), fsys.Rename(open, path))
	}
	if end > f.Size {
		return false, errors.Wrapf(ErrDiverged, "%s has %d bytes, and the file of the manifest %d", open, end, f.Size)
	}
	rest, err := q.bucket.Get(ctx, f.object(), end, f.Size-end)
	if err != nil {
		return false, err
	}
	defer rest.Close()
	err = q.store(ctx, f, path+partSuffix, io.MultiReader(local, rest), done)
	if errors.Is(err, ErrCorrupt) {
		return false, errors.Wrapf(ErrDiverged, "%s and object %s: %v", open, f.object(), err)
	}
	if err != nil {
		return false, err
	}
	return true, fsys.Rename(path+partSuffix, path)
}

// removeOpen removes the open segments that the files of the manifest cover.
func (q *replicaQueue) removeOpen() error {
	names, err := q.options.FS.List(q.dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		parsed, ok := queue.ParseFileName(name)
		if !ok || parsed.Sealed || parsed.First > q.manifest.Heads[0].Sealed {
			continue
		}
		if err := q.options.FS.Remove(filepath.Join(q.dir, name)); err != nil {
			return err
		}
	}
	return nil
}

// RestoreIncrements adds the increments of a manifest to a queue that Restore has made from
// it, or to those of all shards, and returns the number of the last one. A Writer continues
// after them.
func RestoreIncrements(ctx context.Context, b bucket.Bucket, base Ref, m *Manifest, dir string, opts *Options) (uint64, error) {
	dirs := map[int]string{}
	for i := range m.Layout.Shards {
		dirs[i] = m.Layout.Dir(dir, i)
	}
	return restoreIncrements(ctx, b, base, m, dirs, opts)
}

// RestoreShard makes the directory of the queue of a shard from a manifest and its increments, for
// reading: it cannot be published. The directory is as of Restore.
func RestoreShard(ctx context.Context, b bucket.Bucket, base Ref, m *Manifest, shard int, dir string, opts *Options) error {
	err := Restore(ctx, b, m.queueAt(shard), dir, opts)
	if err == nil {
		_, err = restoreIncrements(ctx, b, base, m, map[int]string{shard: dir}, opts)
	}
	return err
}

// restoreIncrements adds increments to the queues of some shards in their directories.
func restoreIncrements(ctx context.Context, b bucket.Bucket, base Ref, m *Manifest, dirs map[int]string, opts *Options) (uint64, error) {
	r := NewIncrementReader(b, m)
	extensions := map[int]*Extension{}
	next := uint64(math.MaxUint64)
	for i, dir := range dirs {
		e, err := OpenExtension(ctx, r, base, m.queueAt(i), i, dir, opts)
		if err != nil {
			return 0, err
		}
		extensions[i] = e
		next = min(next, e.number+1)
	}
	for end := false; !end; {
		var list []StoredIncrement
		var err error
		if list, end, err = r.ReadIncrements(ctx, base, next, MaxAhead); err != nil {
			return 0, err
		}
		for _, i := range list {
			for _, e := range extensions {
				if e.number+1 != next {
					continue
				}
				if err := e.add(i); err != nil {
					return 0, err
				}
			}
			next++
		}
	}
	for _, e := range extensions {
		if err := e.Sync(); err != nil {
			return 0, err
		}
	}
	return next - 1, nil
}

// Sync makes the increments that were added durable.
func (e *Extension) Sync() error {
	if e.size == 0 {
		return nil
	}
	file, err := e.options.FS.OpenAppend(e.path)
	if err != nil {
		return err
	}
	return errors.CombineErrors(errors.CombineErrors(file.Sync(), file.Close()), e.options.FS.SyncDir(filepath.Dir(e.path)))
}
