package boxcarprom

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"docstore/boxcarrpc"
)

// A Pool is a prometheus.Collector with the metrics of a pool.
type Pool struct {
	calls   *calls
	numbers numbers[boxcarrpc.PoolStats]
	pool    atomic.Pointer[boxcarrpc.Pool]
}

// NewPool returns the metrics of a pool. o may be nil.
func NewPool(o *Options) *Pool {
	options := o.withDefaults("boxcar_client")
	p := &Pool{calls: newCalls(options,
		"Calls and streams that have ended, by method and code.",
		"How long calls took, all their attempts together, by method.",
		"The slots that calls were answered on, or failed on.")}
	p.numbers.options = options
	type stats = boxcarrpc.PoolStats
	gauge, counter := p.numbers.gauge, p.numbers.counter
	gauge("servers", "Servers in the set.", func(s stats) float64 { return float64(s.Servers) })
	gauge("servers_live", "Of these, neither draining nor broken since their last answer.", func(s stats) float64 { return float64(s.Live) })
	gauge("servers_ejected", "Of these, ejected because they fail requests.", func(s stats) float64 { return float64(s.Ejected) })
	gauge("transports", "Connections open now.", func(s stats) float64 { return float64(s.Transports) })
	gauge("slots_wanted", "The ladder's size.", func(s stats) float64 { return float64(s.Size) })
	gauge("slots", "Slots held now; divided by slots_wanted, how full the ladder is.", func(s stats) float64 { return float64(s.Slots) })
	gauge("slots_busy", "Slots with a request, including abandoned requests.", func(s stats) float64 { return float64(s.Busy) })
	gauge("slot_lowest", "Lowest slot held, -1 if none.", func(s stats) float64 { return float64(s.Lowest) })
	gauge("slot_highest", "Highest slot held, -1 if none.", func(s stats) float64 { return float64(s.Highest) })
	gauge("waiting", "Calls that wait for a slot.", func(s stats) float64 { return float64(s.Waiting) })
	gauge("streams", "Streams open now.", func(s stats) float64 { return float64(s.Streams) })
	counter("calls_total", "Calls started.", func(s stats) float64 { return float64(s.Calls) })
	counter("other_zone_total", "Attempts, first or further, on servers of other zones.", func(s stats) float64 { return float64(s.OtherZone) })
	counter("failed_total", "Of these, failed with any error.", func(s stats) float64 { return float64(s.Failed) })
	counter("rejected_total", "Of these, refused because all slots were busy.", func(s stats) float64 { return float64(s.Rejected) })
	counter("retries_total", "Attempts after the first of a call.", func(s stats) float64 { return float64(s.Retries) })
	counter("retries_unfunded_total", "Attempts not made because the retry budget was empty.", func(s stats) float64 { return float64(s.Unfunded) })
	counter("hedges_total", "Hedged attempts, started while a slow one is in flight.", func(s stats) float64 { return float64(s.Hedges) })
	counter("hedges_won_total", "Of these, answered first.", func(s stats) float64 { return float64(s.HedgesWon) })
	counter("leases_total", "Slots gained.", func(s stats) float64 { return float64(s.Leases) })
	counter("swaps_total", "Of these, replacements of a higher slot.", func(s stats) float64 { return float64(s.Swaps) })
	counter("slots_lost_total", "Slots lost with their connection, or to a panic.", func(s stats) float64 { return float64(s.Lost) })
	counter("transports_broken_total", "Connections that broke.", func(s stats) float64 { return float64(s.Broken) })
	return p
}

// Instrument adds interceptors to the options of the pool for Watch, as the outermost,
// and returns the options.
func (p *Pool) Instrument(o *boxcarrpc.PoolOptions) *boxcarrpc.PoolOptions {
	o.Interceptors = append([]func(boxcarrpc.Caller) boxcarrpc.Caller{p.intercept}, o.Interceptors...)
	o.StreamInterceptors = append([]func(boxcarrpc.StreamOpener) boxcarrpc.StreamOpener{p.interceptStream}, o.StreamInterceptors...)
	return o
}

// Watch adds the pool's counters, which are absent before.
func (p *Pool) Watch(pool *boxcarrpc.Pool) { p.pool.Store(pool) }

func (p *Pool) intercept(next boxcarrpc.Caller) boxcarrpc.Caller {
	return func(ctx context.Context, method string, request, dst []byte, info *boxcarrpc.CallInfo) ([]byte, error) {
		began := p.calls.now()
		out, err := next(ctx, method, request, dst, info)
		p.calls.note(method, boxcarrpc.CodeOf(err), info.Slot, began)
		return out, err
	}
}

func (p *Pool) interceptStream(next boxcarrpc.StreamOpener) boxcarrpc.StreamOpener {
	return func(ctx context.Context, method string, metadata boxcarrpc.Metadata) (*boxcarrpc.ClientStream, error) {
		stream, err := next(ctx, method, metadata)
		if err != nil {
			p.calls.note(method, boxcarrpc.CodeOf(err), -1, time.Time{})
			return nil, err
		}
		stream.OnEnd(func(err error) { p.calls.note(method, boxcarrpc.CodeOf(err), -1, time.Time{}) })
		return stream, nil
	}
}

// Describe implements prometheus.Collector.
func (p *Pool) Describe(to chan<- *prometheus.Desc) {
	p.calls.describe(to)
	p.numbers.describe(to)
}

// Collect implements prometheus.Collector.
func (p *Pool) Collect(to chan<- prometheus.Metric) {
	p.calls.collect(to)
	if pool := p.pool.Load(); pool != nil {
		p.numbers.collect(to, pool.Stats())
	}
}
