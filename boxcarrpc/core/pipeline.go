package core

const (
	// The lanes in use are counted over this many requests: often enough that busy lanes are
	// seen, up to some hundred of them.
	pipelineRequests = 1024
	// A part has at least this many responses.
	pipelineLeast = 4
	// The parts of the responses to all lanes in use. More and smaller ones cost more writes, each
	// as much as several responses. A client with many lanes has several connections, which
	// overlap as well: see Connections.
	pipelineParts = 2
)

// A Pipeline decides when a server writes the finished responses of a connection while
// more requests of the connection wait.
//
// A write for each response costs a system call each. A single write after all requests that
// have arrived makes client and server take turns: each sleeps until the other one has
// handled all requests in flight. A Pipeline divides the responses into parts, so that
// the client handles one part, and sends new requests, while the server works on the next.
//
// The server does not know how many requests the client has in flight. A Pipeline uses the
// number of lanes with a request among the last 1,024 to 2,048 requests.
type Pipeline struct {
	period   uint32 // of pipelineRequests requests
	requests int32  // in this period
	lanes    int32  // with a request in this period
	before   int32  // lanes with a request in the period before; 0 in the first
	finished int32  // responses since the last write
}

// Request counts a request. last belongs to its lane, is zero at first and is not used by
// others.
func (p *Pipeline) Request(last *uint32) {
	if p.requests == 0 {
		p.period++
	}
	if *last != p.period {
		*last = p.period
		p.lanes++
	}
	if p.requests++; p.requests == pipelineRequests {
		p.before, p.lanes, p.requests = p.lanes, 0, 0
	}
}

// Response counts a finished response and reports whether to write now.
func (p *Pipeline) Response() (write bool) {
	p.finished++
	return p.before > 0 && p.finished >= max(pipelineLeast, p.before/pipelineParts)
}

// Written starts the next part. The server has written all finished responses.
func (p *Pipeline) Written() { p.finished = 0 }
