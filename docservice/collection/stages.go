package collection

import "context"

// Stages of a request, for a Tracer.
const (
	StageIndex     = "docstore.index"     // ids become addresses
	StageMemcached = "docstore.memcached" // a document is read from memcached, or from its segment on a miss
	StageSegment   = "docstore.segment"   // documents are read from segments
)

// A Tracer returns the function that traces one request, nil if the request is not traced.
// That function is called when a stage begins, and its result when the stage ends, in the
// goroutine of the request.
type Tracer func(ctx context.Context) func(stage string) (end func())

// Trace sets the tracer of the requests that Handle answers. It must be called before the
// first request.
func (s *Service) Trace(t Tracer) { s.tracer = t }

// stages traces the stages of one request; nil traces nothing.
type stages func(stage string) (end func())

// stagesOf returns the stages of the request of ctx.
func (s *Service) stagesOf(ctx context.Context) stages {
	if s.tracer == nil {
		return nil
	}
	return s.tracer(ctx)
}

func (s stages) begin(stage string) (end func()) {
	if s == nil {
		return noop
	}
	return s(stage)
}

func noop() {}
