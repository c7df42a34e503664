package main

// An event happens at a time. Events with the same time are ordered by what, so that runs
// are reproducible.
type event struct {
	at   int64
	what uint64 // kind, generation and index
}

type eventKind uint8

const (
	serviceEnds     eventKind = iota // index: task
	freshArrives                     // index: task, on a new connection
	responseArrives                  // index: task
	dialed                           // index: question
	dialFails                        // index: question, without an answer
	frontendWakes                    // index: frontend
	backendFails                     // index: backend
	backendSilent
	backendDrains
	backendReturns
	frontendMoves // index: frontend
)

const (
	indexBits      = 32
	generationBits = 27
)

func packed(kind eventKind, generation uint32, index int32) uint64 {
	return uint64(kind)<<(indexBits+generationBits) | uint64(generation&(1<<generationBits-1))<<indexBits | uint64(uint32(index))
}

func (e event) unpack() (kind eventKind, generation uint32, index int32) {
	return eventKind(e.what >> (indexBits + generationBits)), uint32(e.what>>indexBits) & (1<<generationBits - 1), int32(uint32(e.what))
}

func (e event) before(f event) bool { return e.at < f.at || e.at == f.at && e.what < f.what }

// A schedule is a 4-ary heap of events, with half the cache misses of a binary heap.
type schedule struct{ events []event }

func (s *schedule) push(e event) {
	s.events = append(s.events, e)
	i := len(s.events) - 1
	for i > 0 {
		parent := (i - 1) / 4
		if !e.before(s.events[parent]) {
			break
		}
		s.events[i] = s.events[parent]
		i = parent
	}
	s.events[i] = e
}

func (s *schedule) pop() event {
	top := s.events[0]
	last := s.events[len(s.events)-1]
	s.events = s.events[:len(s.events)-1]
	n := len(s.events)
	if n == 0 {
		return top
	}
	i := 0
	for {
		first := 4*i + 1
		if first >= n {
			break
		}
		least := first
		for child := first + 1; child < min(first+4, n); child++ {
			if s.events[child].before(s.events[least]) {
				least = child
			}
		}
		if !s.events[least].before(last) {
			break
		}
		s.events[i] = s.events[least]
		i = least
	}
	s.events[i] = last
	return top
}

// next returns the time of the first event, or never.
func (s *schedule) next() int64 {
	if len(s.events) == 0 {
		return never
	}
	return s.events[0].at
}

// A wire is a FIFO of messages on the network. All its messages take the same time, so
// that no heap is necessary.
type wire[T any] struct {
	ring       []crossing[T]
	head, tail uint64
}

type crossing[T any] struct {
	at   int64
	what T
}

// send adds a message that arrives at a time, which is not before that of the last one.
func (w *wire[T]) send(at int64, what T) {
	if w.tail-w.head == uint64(len(w.ring)) {
		w.grow()
	}
	w.ring[w.tail&uint64(len(w.ring)-1)] = crossing[T]{at, what}
	w.tail++
}

func (w *wire[T]) grow() {
	old := w.ring
	w.ring = make([]crossing[T], max(1024, 2*len(old)))
	for i := w.head; i < w.tail; i++ {
		w.ring[i&uint64(len(w.ring)-1)] = old[i&uint64(len(old)-1)]
	}
}

func (w *wire[T]) next() int64 {
	if w.head == w.tail {
		return never
	}
	return w.ring[w.head&uint64(len(w.ring)-1)].at
}

func (w *wire[T]) receive() T {
	what := w.ring[w.head&uint64(len(w.ring)-1)].what
	w.head++
	return what
}
