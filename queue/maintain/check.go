package maintain

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"runtime"
	"slices"

	"docstore/internal/vfs"
	"docstore/queue"
	"docstore/queue/codec"
	"docstore/queue/internal/segment"
)

// Report is the result of a check.
type Report struct {
	Segments  int
	Blocks    int64
	Entries   int64
	Documents int64
	Deletes   int64
	Lost      int64 // documents that a repair has recorded as lost
	Bytes     int64 // read and verified
	// Unfinished is the number of bytes after the last commit mark of segments that are
	// being written or copied. They are not damage.
	Unfinished int64
	Missing    []queue.SegmentID        // numbers with neither a segment nor a rewrite
	Damage     []*queue.CorruptionError // in the order of segments and offsets
	Unlisted   int                      // damage beyond the first 10,000
}

// maxDamage bounds the damage that a report lists.
const maxDamage = 10000

// CheckOptions configure Check. Nil and zero values are the defaults.
type CheckOptions struct {
	// FS is the file system of the directory. The default is vfs.OS.
	FS vfs.FS
	// Decode also decompresses each document. This verifies the codec; damage is found by
	// the checksums alone. It takes ten times as long. Documents of a codec that this
	// build lacks are skipped.
	Decode bool
	// Progress is called with the number of bytes verified so far and in total.
	Progress func(done, total int64)
}

// Check verifies every byte of the queue in dir by its checksums: headers and
// dictionaries, the chain of blocks and segments, tables, documents, marks and footers.
// It finds all damage and not only the first, using all processors. It needs no lock and
// may run while the queue is written or copied.
func Check(ctx context.Context, dir string, opts *CheckOptions) (Report, error) {
	c := checker{fs: vfs.OS, dir: dir, atOnce: 2 * runtime.GOMAXPROCS(0)}
	if opts != nil {
		c.decode, c.progress = opts.Decode, opts.Progress
		if opts.FS != nil {
			c.fs = opts.FS
		}
	}
	head, err := c.head() // read before the listing, so that the listing has at least its segments
	if err != nil {
		return c.report, err
	}
	l, err := segment.List(c.fs, dir)
	if err != nil {
		return c.report, fmt.Errorf("queue: listing the directory: %w", err)
	}
	c.findTruncated(&l)
	for _, run := range l.Rewrites {
		if info, err := c.fs.Stat(run.Path(dir)); err == nil {
			c.total += info.Size
		}
	}
	for _, n := range l.Numbers {
		info, err := c.fs.Stat(segment.Path(dir, n, l.SuffixOf(n)))
		if err == nil {
			c.total += info.Size
		}
	}
	expected := queue.SegmentID(1)
	for _, n := range l.Numbers {
		c.missing(&l, expected, n)
		expected = n + 1
		if err := c.segment(ctx, n); err != nil {
			return c.report, err
		}
	}
	c.missing(&l, expected, max(l.Last(), head.Highest)+1)
	for _, run := range l.Rewrites {
		// If it does not exist any more, a higher generation has replaced it.
		if err := c.rewrite(ctx, run); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return c.report, err
		}
	}
	if !c.isTruncated(head.Sealed) {
		c.follows(head.Sealed, head.Digest, queue.CorruptionError{Path: filepath.Join(dir, queue.HeadName), Segment: head.Sealed})
	}
	return c.report, nil
}

// head reads the head file, zero if there is none.
func (c *checker) head() (queue.Head, error) {
	head, err := queue.ReadHead(c.fs, c.dir)
	var corruption *queue.CorruptionError
	switch {
	case errors.As(err, &corruption):
		c.damage(corruption)
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return head, err
	}
	return head, nil
}

// findTruncated records the segments with truncated entries. Files that are left of them
// are not part of the chain.
func (c *checker) findTruncated(l *segment.Listing) {
	for _, run := range l.Rewrites {
		if s, err := segment.OpenRewrite(c.fs, c.dir, run); err == nil {
			c.truncated = append(c.truncated, s.Relocations.Truncated...)
			s.Close()
		}
	}
}

// follows records the digest of segment n that a file holds: its own, or that of the
// previous segment. Two different digests belong to different histories; damage is the
// report if this file is the second.
func (c *checker) follows(n queue.SegmentID, d segment.Digest, damage queue.CorruptionError) {
	if n == 0 || d == (segment.Digest{}) {
		return
	}
	if first, known := c.digests[n]; !known {
		if c.digests == nil {
			c.digests = map[queue.SegmentID]segmentDigest{}
		}
		c.digests[n] = segmentDigest{d, damage.Path}
	} else if first.digest != d {
		damage.Reason = fmt.Sprintf("the digest of segment %d is %x here and %x in %s: %v", n, d[:16], first.digest[:16], first.path, queue.ErrForked)
		c.damage(&damage)
	}
}

// missing lists the segments from one number to before another that have neither a file
// nor a rewrite.
func (c *checker) missing(l *segment.Listing, from, to queue.SegmentID) {
	for n := from; n < to && len(c.report.Missing) < maxDamage; n++ {
		if !l.Rewritten(n) {
			c.report.Missing = append(c.report.Missing, n)
		}
	}
}

// rewrite verifies a rewrite.
func (c *checker) rewrite(ctx context.Context, run segment.Run) error {
	s, err := segment.OpenRewrite(c.fs, c.dir, run)
	if s == nil {
		return c.unopened(run.Path(c.dir), run.First, true, err)
	}
	defer s.Close()
	c.report.Segments++
	if err := c.checkStart(s); err != nil {
		return err
	}
	if err := c.frames(ctx, s, true); err != nil {
		return err
	}
	c.read(int64(s.Footer.Offset) - s.Footer.Limit())
	return nil
}

// CheckFile verifies every byte of one file of the queue in dir, by its name. Damage is in the
// report; the error is about reading the file.
func CheckFile(ctx context.Context, fsys vfs.FS, dir, name string) (Report, error) {
	c := checker{fs: fsys, dir: dir}
	if run, ok := segment.ParseRewriteName(name); ok {
		err := c.rewrite(ctx, run)
		return c.report, err
	}
	n, suffix, ok := segment.ParseName(name)
	if !ok {
		return Report{}, fmt.Errorf("queue: %q is not the name of a segment's file", name)
	}
	err := c.file(ctx, n, suffix)
	return c.report, err
}

// checker verifies segments in ascending order.
type checker struct {
	fs       vfs.FS
	dir      string
	progress func(done, total int64)
	total    int64 // bytes of all files
	done     int64 // verified or skipped
	report   Report
	queue    *[16]byte // of the first file
	// digests are those of the segments, with the file in which each was found first.
	digests   map[queue.SegmentID]segmentDigest
	truncated []segment.AddressRange
	decode    bool
	decoder   codec.Decoder // nil: documents are not decoded
	blocks    []*blockCheck // being verified, in file order
	spare     []*blockCheck
	atOnce    int // blocks are verified at once; 0: one after the other
}

func (c *checker) damage(found ...*queue.CorruptionError) {
	room := maxDamage - len(c.report.Damage)
	c.report.Unlisted += max(0, len(found)-room)
	c.report.Damage = append(c.report.Damage, found[:min(room, len(found))]...)
}

// read counts bytes that were verified.
func (c *checker) read(bytes int64) {
	c.report.Bytes += bytes
	c.skip(bytes)
}

// skip counts bytes that are not verified.
func (c *checker) skip(bytes int64) {
	c.done += bytes
	if c.progress != nil {
		c.progress(c.done, max(c.total, c.done))
	}
}

// segment verifies one segment: if it has two files, the sealed one. The error is about
// reading it, or ErrNewerVersion.
func (c *checker) segment(ctx context.Context, n queue.SegmentID) error {
	err := fs.ErrNotExist
	for i := 0; i < len(segment.Suffixes) && errors.Is(err, fs.ErrNotExist); i++ {
		err = c.file(ctx, n, segment.Suffixes[i])
	}
	return err
}

type segmentDigest struct {
	digest segment.Digest
	path   string
}

// file verifies one file of a segment.
func (c *checker) file(ctx context.Context, n queue.SegmentID, suffix string) error {
	path := segment.Path(c.dir, n, suffix)
	s, err := segment.Open(c.fs, path, n)
	if s == nil {
		return c.unopened(path, n, suffix == segment.SealedSuffix, err)
	}
	defer s.Close()
	c.report.Segments++
	if err := c.checkStart(s); err != nil {
		return err
	}
	return c.frames(ctx, s, suffix == segment.SealedSuffix)
}

// unopened reports a file that could not be opened because of its content.
func (c *checker) unopened(path string, n queue.SegmentID, sealed bool, err error) error {
	var corruption *queue.CorruptionError
	switch {
	case errors.As(err, &corruption):
		c.damage(corruption)
	case errors.Is(err, segment.ErrPartial) && sealed:
		c.damage(&queue.CorruptionError{Path: path, Segment: n, Reason: "segment is not whole: its header or footer is missing"})
	case errors.Is(err, segment.ErrPartial):
		info, err := c.fs.Stat(path)
		if err != nil {
			return err
		}
		c.report.Unfinished += info.Size
	default:
		return err
	}
	c.report.Segments++
	return nil
}

// checkStart verifies that the file continues the chain of segments, and its dictionary.
func (c *checker) checkStart(s *segment.File) error {
	if c.queue == nil {
		c.queue = &s.Header.Queue
	}
	last := max(s.Number, s.Header.Rewrites.Last)
	switch {
	case *c.queue != s.Header.Queue:
		c.damage(s.Corruption(0, fmt.Errorf("segment is of queue %x, the others are of %x: %w", s.Header.Queue, *c.queue, queue.ErrForked)))
	case s.Truncates(last) || !c.isTruncated(last):
		c.chained(s)
	}
	c.decoder = nil
	content, err := s.Dictionary()
	if err == nil {
		c.read(s.Header.FirstFrame())
		if codec, unknown := codec.ByID(s.Header.Codec); c.decode && unknown == nil {
			if c.decoder, err = codec.NewDecoder(content); err != nil {
				err = s.Corruption(segment.HeaderBytes, err)
			}
		}
	}
	var corruption *queue.CorruptionError
	switch {
	case errors.As(err, &corruption):
		c.damage(corruption)
	case errors.Is(err, segment.ErrPartial): // frames reports it
	case err != nil:
		return err
	}
	return nil
}

// isTruncated reports whether entries at the end of segment n were truncated. A file with
// them, and a head from before the truncation, are not part of the chain.
func (c *checker) isTruncated(n queue.SegmentID) bool {
	return slices.ContainsFunc(c.truncated, func(r segment.AddressRange) bool {
		return r.From.Segment <= n && n < r.To.Segment
	})
}

// chained records the digests that the file holds.
func (c *checker) chained(s *segment.File) {
	c.follows(s.Number-1, s.Header.Previous, queue.CorruptionError{Path: s.Path, Segment: s.Number})
	if s.Footer == nil {
		return
	}
	for n := s.Number; n <= max(s.Number, s.Header.Rewrites.Last); n++ {
		c.follows(n, s.DigestOf(n), queue.CorruptionError{Path: s.Path, Segment: s.Number, Offset: int64(s.Footer.Offset)})
	}
}

// frames verifies the frames, and continues after damage.
func (c *checker) frames(ctx context.Context, s *segment.File, sealed bool) error {
	defer c.dropBlocks()
	var b segment.Block
	w := s.NewWalk()
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		offset := w.Next
		kind, err := w.Step(s, &b)
		switch {
		case err == nil && kind == segment.FrameFooter:
			if err := c.finishBlocks(0); err != nil {
				return err
			}
			if w.Seen != s.Footer.Totals && !w.Jumped {
				c.damage(s.Corruption(offset, errors.New("footer's totals are not those of the segment")))
			}
			c.read(segment.FooterBytes)
			return nil
		case err == nil && kind == segment.FrameMark:
			c.read(segment.MarkBytes)
		case err == nil:
			if err := c.startBlock(s, &b, offset); err != nil {
				return err
			}
		case !segment.IsContent(err):
			return err
		default:
			if err := c.finishBlocks(0); err != nil {
				return err
			}
			if done, err := c.resume(s, w, s.Damage(offset, err), sealed); done || err != nil {
				return err
			}
		}
	}
}

// resume lists the damage at w.next and moves w past it. It returns true if nothing
// follows.
func (c *checker) resume(s *segment.File, w *segment.Walk, damage error, sealed bool) (bool, error) {
	var corruption *queue.CorruptionError
	if !errors.As(damage, &corruption) { // the bytes may not have arrived
		c.report.Unfinished += s.Limit() - w.Marked.End
		if sealed {
			c.damage(s.Corruption(w.Next, errors.New("sealed segment is incomplete from here on: its footer is missing or damaged")))
		}
		return true, nil
	}
	c.damage(corruption)
	before := w.Next
	err := w.Jump(s)
	c.skip(w.Next - before)
	return false, err
}

// blockCheck is a block whose documents are verified by a goroutine while the checker
// reads the following frames.
type blockCheck struct {
	block  segment.Block
	offset int64
	done   chan struct{} // receives when the fields below are set
	bad    []*queue.CorruptionError
	err    error
}

// startBlock verifies the documents of the block at offset, which it takes over: b is
// another, empty block afterwards. The results for it and for earlier blocks are reported
// in order, now or by finishBlocks.
func (c *checker) startBlock(s *segment.File, b *segment.Block, offset int64) error {
	k := &blockCheck{done: make(chan struct{}, 1)}
	if n := len(c.spare); n > 0 {
		k, c.spare = c.spare[n-1], c.spare[:n-1]
	}
	k.block, *b = *b, k.block
	k.offset = offset
	c.blocks = append(c.blocks, k)
	decoder := c.decoder
	verify := func() {
		k.bad, k.err = s.CheckDocuments(&k.block, offset, decoder)
		if errors.Is(k.err, segment.ErrPartial) {
			k.bad, k.err = []*queue.CorruptionError{s.Corruption(offset, errors.New("file was cut while it was read"))}, nil
		}
		k.done <- struct{}{}
	}
	if c.atOnce == 0 {
		verify()
	} else {
		go verify()
	}
	return c.finishBlocks(c.atOnce)
}

// finishBlocks reports the results of blocks until at most left are being verified.
func (c *checker) finishBlocks(left int) error {
	for len(c.blocks) > left {
		k := c.blocks[0]
		<-k.done
		c.blocks = c.blocks[1:]
		c.spare = append(c.spare, k)
		if k.err != nil {
			return k.err
		}
		c.report.add(&k.block)
		c.damage(k.bad...)
		c.read(k.block.Size())
	}
	return nil
}

// dropBlocks waits for the blocks being verified and discards their results.
func (c *checker) dropBlocks() {
	for _, k := range c.blocks {
		<-k.done
		c.spare = append(c.spare, k)
	}
	c.blocks = nil
}

// add counts a block.
func (r *Report) add(b *segment.Block) {
	r.Blocks++
	r.Entries += int64(b.Count)
	for i := range b.Count {
		switch e := b.Entry(i); {
		case e.Deleted():
			r.Deletes++
		case e.Lost():
			r.Lost++
			fallthrough
		default:
			r.Documents++
		}
	}
}
