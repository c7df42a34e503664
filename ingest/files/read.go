package files

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"

	"docstore/ingest"
	"docstore/ingest/records"
	"docstore/internal/eof"
)

// callerContext is the context of the present call of Next. Readers below a stream wait with
// it, also in goroutines of a decompressor.
type callerContext struct {
	current atomic.Pointer[context.Context]
}

func newCallerContext(ctx context.Context) *callerContext {
	c := new(callerContext)
	c.set(ctx)
	return c
}

func (c *callerContext) set(ctx context.Context) { c.current.Store(&ctx) }
func (c *callerContext) get() context.Context    { return *c.current.Load() }

// fileReader reads the records of a file or pipe.
type fileReader struct {
	in     *input
	stream *records.Stream
	file   io.Closer
	ctx    *callerContext
	at     cursor // behind the last record
	tail   sample // of each cursor in a Parquet file; else zero
}

// openFile opens the records from the start position of the input. An object is read until
// ctx ends.
func openFile(ctx context.Context, in *input, options Options, watcher *fileWatcher) (*fileReader, error) {
	r := &fileReader{in: in, ctx: newCallerContext(ctx), at: in.from}
	if in.format == Parquet {
		return r, r.openParquet(ctx, options)
	}
	var bytes io.Reader
	switch {
	case !in.stable:
		p := openPipe(r.ctx, in.opener(options.Stdin))
		r.file, bytes = p, p
	default:
		start := int64(0)
		if in.seekable() && in.skip == nil {
			start = in.from.Offset
		}
		opened, err := in.openAt(ctx, start)
		if err != nil {
			return nil, err
		}
		r.file, bytes = opened, opened
		if object, ok := opened.(interface{ Remaining() int64 }); ok && start == 0 {
			r.at.File.Inode = uint64(object.Remaining()) // it may have been replaced since it was listed
		}
		if local, ok := opened.(*body); in.follow && ok {
			if bytes, err = newFollower(r.ctx, in.fs, local.file, in.name, start, watcher); err != nil {
				return nil, errors.Join(err, opened.Close())
			}
		}
	}
	if err := r.openStream(bytes, options.Records); err != nil {
		return nil, errors.Join(err, r.file.Close())
	}
	return r, nil
}

func (r *fileReader) openStream(bytes io.Reader, options *records.Options) (err error) {
	in := r.in
	if in.seekable() && in.skip == nil {
		r.stream = &records.Stream{Reader: records.NewLines(bytes, MaxRecordBytes, in.from.Offset, in.from.Lines)}
		return nil
	}
	if r.stream, err = records.Open(bytes, in.name, in.format, MaxRecordBytes, options); err != nil {
		return err
	}
	in.format = r.stream.Format
	if in.skip == nil {
		return nil
	}
	if err := skipTo(r.stream, in.skip); err != nil {
		_ = r.stream.Close() // read errors were reported
		return in.skip.cannotContinue(err)
	}
	return nil
}

func (r *fileReader) fill(ctx context.Context, b *batch) error {
	r.ctx.set(ctx)
	start := r.at.Offset
	defer func() { b.Bytes = r.at.Offset - start }()
	for !b.full() {
		record, err := r.stream.Next()
		var at *records.LineError
		switch {
		case eof.Is(err):
			return r.end()
		case errors.As(err, &at):
			return fmt.Errorf("%s:%d: %w", r.in.name, at.Line, at.Err)
		case err != nil:
			return fmt.Errorf("reading after %s: %w", r.in.place(r.at), err)
		}
		text := b.keep(record.Text) // now: the stream may read more to detect its end
		r.at.moveAfter(record, r.in.head, r.tail)
		r.at.AtEnd = r.in.atEnd(r.stream, r.at.Offset)
		b.add(ingest.Record{Document: text, Problem: record.Problem}, r.at, record.Line)
		if r.in.live() && !r.stream.Waiting() {
			return nil
		}
	}
	return nil
}

// end returns io.EOF. It keeps the time of modification of a followed file, to find files
// that replace it before it is read to its end.
func (r *fileReader) end() error {
	if local, ok := r.file.(*body); ok && r.in.follow {
		info, err := local.file.Stat()
		if err != nil {
			return err
		}
		r.in.modified = info.ModTime
	}
	return io.EOF
}

func (r *fileReader) close() {
	_ = r.stream.Close() // read errors were reported
	_ = r.file.Close()   // it was only read
}
