package lsm

import "docstore/bloom"

// filterOutput builds the filter of a table in a separate goroutine, which takes a sixth
// of the time of a merge. Only the keys are passed to it, in lists, so it has few data to
// fetch from the other processor.
//
// The goroutine runs from newFilterOutput until finish or stop, one of which must be
// called.
type filterOutput struct {
	builder *bloom.Builder
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

func newFilterOutput(o *bloom.Options) *filterOutput {
	f := &filterOutput{
		builder: bloom.NewBuilder(o),
		full:    make(chan keyList, maxKeyLists),
		free:    make(chan keyList, maxKeyLists+2), // all lists
		done:    make(chan struct{}),
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

// finish returns the encoded filter and ends the goroutine.
func (f *filterOutput) finish() []byte {
	f.full <- f.keys
	f.stop()
	return f.builder.Finish(nil)
}

// stop ends the goroutine. It is idempotent.
func (f *filterOutput) stop() {
	if !f.stopped {
		f.stopped = true
		close(f.full)
		<-f.done
	}
}
