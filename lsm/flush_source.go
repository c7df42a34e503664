package lsm

// flushSource steps over all keys of a memtable that is not written any more.
//
// Keys that follow each other lie anywhere in the arenas. So entries are fetched
// by the window: first all nodes, then all that they lead to. No fetch waits for the
// result of the one before, and the processor does many at a time; taken one by one
// they took 280 ns an entry in a profile of 4 million writes.
type flushSource struct {
	versions *versionMap
	nodes    []orderedNode // beyond the window
	window   [flushWindow]struct{ key, version ref }
	filled   int // entries in the window
	at       int // of the entry shown
	current  memVersion
	touched  byte // keeps the compiler from leaving the fetches out
}

const flushWindow = 64

func (m *memtable) flushSource() entrySource {
	nodes, _ := m.versions.newNodes(0)
	return &flushSource{versions: m.versions, nodes: m.versions.sorted(nodes)}
}

func (s *flushSource) first() bool { return s.show(0) }
func (s *flushSource) next() bool  { return s.show(s.at + 1) }

func (s *flushSource) show(at int) bool {
	if at == s.filled {
		s.fill()
		at = 0
	}
	s.at = at
	if at == s.filled {
		return false
	}
	s.current = decodeVersion(s.versions.data.at(s.window[at].version))
	return true
}

func (s *flushSource) fill() {
	s.filled = min(len(s.nodes), flushWindow)
	for i, n := range s.nodes[:s.filled] {
		node := s.versions.node(n.node)
		s.window[i].key, s.window[i].version = node.key, ref(node.newest.Load())
	}
	for i := range s.window[:s.filled] {
		s.touched += s.versions.data.at(s.window[i].version)[0]
		s.touched += s.versions.data.at(s.window[i].key)[0]
	}
	s.nodes = s.nodes[s.filled:]
}

func (s *flushSource) key() []byte     { return s.versions.keyAt(s.window[s.at].key) }
func (s *flushSource) value() []byte   { return s.current.value }
func (s *flushSource) tombstone() bool { return s.current.tombstone }
func (s *flushSource) err() error      { return nil }
