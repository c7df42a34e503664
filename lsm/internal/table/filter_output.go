package table

import "docstore/bloom"

// filterOutput builds the filter of a table in a separate goroutine, which takes a sixth
// of the time of a merge. Only the keys are passed to it, in lists, so it has few data to
// fetch from the other processor.
//
// The goroutine runs from newFilterOutput until finish or stop. The caller must call one of
// them.
type filterOutput struct {
	builder *bloom.Builder
	pages   spooled // finished pages
	index   spooled // and their index
	buffer  []byte  // for passing them on
	err     error   // the first one, of the goroutine

	keys    keyList // being filled
	full    chan keyList
	free    chan keyList  // added lists, for reuse
	done    chan struct{} // closed when the goroutine has ended
	stopped bool
}

// keyList is a list of keys, one after the other.
type keyList struct {
	bytes []byte
	ends  []uint32
}

const (
	// keyListBytes is the size of a list.
	keyListBytes = 32 << 10
	// maxKeyLists is the number of lists that wait.
	maxKeyLists = 1
)

func newFilterOutput(o *bloom.Options, to *spool) *filterOutput {
	f := &filterOutput{
		builder: bloom.NewBuilder(o), pages: spooled{spool: to}, index: spooled{spool: to},
		full: make(chan keyList, maxKeyLists),
		free: make(chan keyList, maxKeyLists+2), // all lists
		done: make(chan struct{}),
	}
	for range maxKeyLists + 1 { // one is being filled
		f.free <- keyList{}
	}
	go f.run()
	return f
}

func (f *filterOutput) run() {
	defer close(f.done)
	for list := range f.full {
		start := uint32(0)
		for _, end := range list.ends {
			f.builder.Add(list.bytes[start:end])
			start = end
		}
		if f.err == nil {
			f.err = f.flush()
		}
		f.free <- keyList{list.bytes[:0], list.ends[:0]}
	}
}

// add adds a key, which must be greater than the last one.
func (f *filterOutput) add(key []byte) {
	f.keys.bytes = append(f.keys.bytes, key...)
	f.keys.ends = append(f.keys.ends, uint32(len(f.keys.bytes)))
	if len(f.keys.bytes) >= keyListBytes || len(f.keys.ends) >= keyListBytes/8 {
		f.full <- f.keys
		f.keys = <-f.free
	}
}

// flush passes the finished pages to the spool.
func (f *filterOutput) flush() error {
	f.buffer = f.builder.Flush(f.buffer[:0])
	if err := f.pages.write(f.buffer); err != nil {
		return err
	}
	f.buffer = f.builder.FlushIndex(f.buffer[:0])
	return f.index.write(f.buffer)
}

// finish ends the goroutine and passes the encoded filter to emit, piece by piece.
func (f *filterOutput) finish(emit func([]byte) error) error {
	f.full <- f.keys
	f.stop()
	if f.err != nil {
		return f.err
	}
	if err := f.pages.copyTo(emit); err != nil {
		return err
	}
	if err := emit(f.builder.FinishPages(nil)); err != nil {
		return err
	}
	if err := f.index.copyTo(emit); err != nil {
		return err
	}
	return emit(f.builder.Finish(nil))
}

// stop ends the goroutine. It is idempotent.
func (f *filterOutput) stop() {
	if !f.stopped {
		f.stopped = true
		close(f.full)
		<-f.done
	}
}
