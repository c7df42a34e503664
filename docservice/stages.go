package docservice

import "context"

// Stages of a request, as a Tracer is told of them.
const (
	StageIndex     = "docstore.index"     // ids become addresses
	StageMemcached = "docstore.memcached" // a document is asked for there, and read from its segment if it is not there
	StageSegment   = "docstore.segment"   // documents are read from segments
)

// A Tracer is asked, for each request, what is to be told of its stages; nil: nothing,
// as of a request that nobody traces. The function that it returns is called when a stage
// begins, and what that returns when it ends, by the goroutine of the request.
type Tracer func(ctx context.Context) func(stage string) (end func())

// Trace has t told of the requests that Handle answers. It must be called before these
// come.
func (s *Service) Trace(t Tracer) { s.tracer = t }

// stages tells of the stages of one request; nil tells nobody.
type stages func(stage string) (end func())

// stagesOf asks the tracer, if there is one.
func (s *Service) stagesOf(ctx context.Context) stages {
	if s.tracer == nil {
		return nil
	}
	return s.tracer(ctx)
}

func (s stages) begin(stage string) (end func()) {
	if s == nil {
		return untold
	}
	return s(stage)
}

func untold() {}
