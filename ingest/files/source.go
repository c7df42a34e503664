package files

import (
	"context"
	"errors"
	"fmt"
	"io"

	"docstore/ingest"
	"docstore/internal/eof"
)

const (
	batchBytes     = 256 << 10 // size of a full batch
	maxIdle        = 1 << 20   // a larger buffer is not reused
	maxIdleBatches = 8
)

// Source reads the inputs. It implements ingest.Source.
type Source struct {
	options Options
	ctx     context.Context // of objects that are read by several calls of Next
	cancel  context.CancelFunc
	total   int64
	objects *objects // more inputs; nil: none
	inputs  []*input // not yet read to the end; reader reads the first
	reader  reader   // nil: the first input is not open
	watcher *fileWatcher
	rotated bool   // the followed file was read, and is to be replaced
	last    *input // of the last reader; nil: there was none
	renamed bool   // the reader's file got the name of the last one; no record of it was read
	failed  error  // of the last Next, and of all that follow
	emptied chan *batch

	batchBytes int // constant, except in tests
}

func newSource(ctx context.Context, options Options) *Source {
	s := &Source{options: options, emptied: make(chan *batch, maxIdleBatches), batchBytes: batchBytes}
	s.ctx, s.cancel = context.WithCancel(context.WithoutCancel(ctx))
	return s
}

// reader reads the records of an input.
type reader interface {
	// fill adds records to an empty batch until it is full, the input ends, or the next
	// record may take long. With io.EOF, and any other error, it may have added records.
	fill(ctx context.Context, b *batch) error
	close()
}

// TotalBytes returns the size of the inputs; 0 if it is unknown.
func (s *Source) TotalBytes() int64 { return s.total }

// Durable implements ingest.Source: files keep everything.
func (s *Source) Durable([]byte) {}

// Lag implements ingest.Source.
func (s *Source) Lag() (int64, string) {
	if s.objects == nil {
		return 0, ""
	}
	return s.objects.waiting.Load(), "bytes"
}

// Close implements ingest.Source. A goroutine that reads a pipe ends with the pipe: a read
// from it may never return.
func (s *Source) Close() error {
	s.failed = errors.New("files: the source is closed")
	s.closeReader()
	s.cancel()
	if s.watcher != nil {
		s.watcher.close()
	}
	return nil
}

func (s *Source) closeReader() {
	if s.reader != nil {
		s.reader.close()
		s.reader = nil
	}
}

// Next implements ingest.Source.
func (s *Source) Next(ctx context.Context) (*ingest.Batch, error) {
	defer context.AfterFunc(ctx, s.cancel)()
	for s.failed == nil {
		if err := s.open(ctx); err != nil {
			s.failed = err
			break
		}
		in := s.inputs[0]
		b := s.newBatch(in)
		err := s.reader.fill(ctx, b)
		switch {
		case eof.Is(err):
			s.closeReader()
			if s.rotated = in.follow; !s.rotated {
				s.inputs = s.inputs[1:]
			}
		case err != nil:
			s.failed = err
		}
		if len(b.Records) > 0 {
			b.FlushBefore, s.renamed = s.renamed, false
			return &b.Batch, nil
		}
		b.release()
	}
	return nil, s.failed
}

// open opens the next input, unless one is open. It returns io.EOF behind the last one.
func (s *Source) open(ctx context.Context) (err error) {
	if s.reader != nil {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if len(s.inputs) == 0 && s.objects != nil {
		in, err := s.objects.next(ctx)
		if err != nil {
			return err
		}
		s.inputs = append(s.inputs, in)
	}
	if len(s.inputs) == 0 {
		return io.EOF
	}
	if s.rotated {
		next, err := s.inputs[0].nextFiles(ctx, s.watcher)
		if err != nil {
			return err
		}
		s.inputs, s.rotated = append(next, s.inputs[1:]...), false
	}
	in := s.inputs[0]
	if in.follow && s.watcher == nil {
		s.watcher = newFileWatcher(in.fs, in.name, followInterval) // also for its replacements
	}
	s.renamed = s.last != nil && s.last.index == in.index && s.objects == nil
	s.last = in
	if OfDirectories(in.format) {
		s.reader = openDirectory(in)
		return nil
	}
	file, err := openFile(s.ctx, in, s.options, s.watcher)
	if err != nil {
		return fmt.Errorf("opening %s: %w", in.name, err)
	}
	s.reader = file
	return nil
}
