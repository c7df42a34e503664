package budget

import (
	"cmp"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"docstore/boxcarrpc/core"
)

const (
	// DefaultMaxInFlight is the default of Admission.MaxInFlight.
	DefaultMaxInFlight = 64 << 10
	// mostInFlight is the largest MaxInFlight.
	mostInFlight = 1 << 30
	// maxClients limits the clients whose rates are tracked, at about 100 bytes each. When
	// there are more, the one that was idle for longest is forgotten.
	maxClients = 16 << 10
	// The default burst is the number of requests that the rate allows in this time.
	burstTime = 100 * time.Millisecond
)

// A Limiter limits a rate of requests: AllowN reports whether n may begin now. It must be
// safe for concurrent use. NewLimiter makes one; a *rate.Limiter of golang.org/x/time/rate
// implements it too.
type Limiter interface {
	AllowN(now time.Time, n int) bool
}

// NewLimiter makes a token bucket of perSecond requests on average and of burst requests at
// once. A burst of 0 means perSecond over 100 ms, at least 1. The limiter is one atomic
// word and takes no lock.
func NewLimiter(perSecond float64, burst int) (Limiter, error) {
	rate, err := core.NewRate(perSecond, cmp.Or(burst, usualBurst(perSecond)))
	if err != nil {
		return nil, err
	}
	return &limiter{rate: rate, start: time.Now()}, nil
}

// usualBurst returns the default burst.
func usualBurst(perSecond float64) int {
	return max(1, int(min(perSecond*burstTime.Seconds(), core.MaxBurst)))
}

type limiter struct {
	rate   core.Rate
	start  time.Time // start of the core's clock
	bucket atomic.Int64
}

func (l *limiter) AllowN(now time.Time, n int) bool { return l.take(now, n, 0) }

// take takes n tokens, and leaves at least keep.
func (l *limiter) take(now time.Time, n, keep int) bool {
	at := max(int64(now.Sub(l.start)), 0)
	for {
		bucket := l.bucket.Load()
		after, ok := l.rate.Take(at, bucket, n, keep)
		if !ok || l.bucket.CompareAndSwap(bucket, after) {
			return ok
		}
	}
}

// A tokenBucket is a Limiter whose tokens are known, as a *rate.Limiter of
// golang.org/x/time/rate: only then batch requests leave a reserve.
type tokenBucket interface {
	TokensAt(now time.Time) float64
	Burst() int
}

// Admission limits the requests that a server accepts. A request above a limit is refused
// before a handler sees it, so that the client retries it on another server.
//
// Batch requests are admitted while a quarter of a limit, at least one request, stays free,
// so that interactive ones are refused only after them. This applies to all limits of this
// type, except a limit or burst of 1 and a Limiter of another package without the methods
// TokensAt and Burst of golang.org/x/time/rate.
//
// The zero value of each field means the default.
type Admission struct {
	// MaxInFlight limits the streams and the requests that are being received or handled.
	// The default is 65,536; the limits of slots and streams apply as well.
	MaxInFlight int
	// Limiter limits the rate of all requests and streams together. The default is no
	// limit.
	Limiter Limiter
	// ClientRate limits the requests and streams of each [Client] per second. The default is
	// no limit.
	ClientRate float64
	// ClientBurst is the number of requests that a client may begin at once. The default is
	// ClientRate over 100 ms, at least 1.
	ClientBurst int
}

// Complete returns a with the defaults filled in, and all errors in it.
func (a Admission) Complete() (Admission, error) {
	var invalid, rate error
	if a.MaxInFlight = cmp.Or(a.MaxInFlight, DefaultMaxInFlight); a.MaxInFlight < 1 || a.MaxInFlight > mostInFlight {
		invalid = fmt.Errorf("budget: MaxInFlight is %d, must be within 1 and %d", a.MaxInFlight, mostInFlight)
	}
	if a.ClientRate != 0 {
		a.ClientBurst = cmp.Or(a.ClientBurst, usualBurst(a.ClientRate))
		if _, err := core.NewRate(a.ClientRate, a.ClientBurst); err != nil {
			rate = fmt.Errorf("budget: ClientRate and ClientBurst are %w", err)
		}
	}
	return a, errors.Join(rate, invalid)
}

// A Gate admits requests within the limits of an Admission. Its methods may be called
// concurrently.
type Gate struct {
	options  atomic.Pointer[Admission]
	start    time.Time // the origin of the core's time
	inFlight atomic.Int64

	clients struct {
		sync.Mutex
		buckets core.Buckets[Client]
		keep    int // tokens that batch leaves in a bucket
	}
	batch sync.Mutex // held while a batch request takes a token of the limiter
}

// NewGate returns a gate with limits that Complete has returned.
func NewGate(limits Admission) *Gate {
	g := &Gate{start: time.Now()}
	g.Set(limits)
	return g
}

// Set replaces the limits by others that Complete has returned. The tracked rates of clients
// are reset.
func (g *Gate) Set(limits Admission) {
	g.clients.Lock()
	defer g.clients.Unlock()
	if rate, err := core.NewRate(limits.ClientRate, limits.ClientBurst); err == nil {
		g.clients.buckets, g.clients.keep = core.NewBuckets[Client](rate, maxClients), core.Reserve(rate.Burst())
	}
	g.options.Store(&limits)
}

// A Refusal is the reason why a Gate does not admit a request.
type Refusal uint8

// The results of Enter.
const (
	Admitted Refusal = iota
	TooManyInFlight
	RateExceeded
	ClientRateExceeded
	Refusals // the number of results
)

// Enter admits a request or a stream, or returns the reason for refusing it. The caller
// must call Leave once for each that is admitted.
func (g *Gate) Enter(now time.Time, client Client, batch bool) Refusal {
	options := g.options.Load()
	switch {
	case !Take(&g.inFlight, options.MaxInFlight, batch):
		return TooManyInFlight
	case options.ClientRate > 0 && !g.allowClient(now, client, batch):
		// Checked before the rate of all, so that one client cannot use up the rate of the
		// others.
		g.Leave()
		return ClientRateExceeded
	case options.Limiter != nil && !g.allow(options.Limiter, now, batch):
		g.Leave()
		return RateExceeded
	}
	return Admitted
}

// Leave ends an admitted request.
func (g *Gate) Leave() { g.inFlight.Add(-1) }

// InFlight returns the number of admitted requests that have not ended.
func (g *Gate) InFlight() int64 { return g.inFlight.Load() }

// Take adds 1 to a counter below a limit, and reports whether it could. Batch leaves the
// reserve of the limit free.
func Take(counter *atomic.Int64, limit int, batch bool) bool {
	if !batch {
		if counter.Add(1) <= int64(limit) {
			return true
		}
		counter.Add(-1)
		return false
	}
	// Batch must not exceed its part even for a moment, in which an interactive request would
	// be refused.
	for most := int64(limit - core.Reserve(limit)); ; {
		n := counter.Load()
		if n >= most {
			return false
		}
		if counter.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

func (g *Gate) allowClient(now time.Time, client Client, batch bool) bool {
	at := max(int64(now.Sub(g.start)), 0)
	g.clients.Lock()
	defer g.clients.Unlock()
	keep := 0
	if batch {
		keep = g.clients.keep
	}
	return g.clients.buckets.Take(at, client, 1, keep)
}

// allow takes a token of the limiter of all requests. Batch leaves its reserve.
func (g *Gate) allow(of Limiter, now time.Time, batch bool) bool {
	if !batch {
		return of.AllowN(now, 1)
	}
	switch of := of.(type) {
	case *limiter:
		return of.take(now, 1, core.Reserve(of.rate.Burst()))
	case tokenBucket:
		g.batch.Lock() // otherwise several could take the last token above the reserve
		defer g.batch.Unlock()
		if of.TokensAt(now) < float64(1+core.Reserve(of.Burst())) {
			return false
		}
	}
	return of.AllowN(now, 1)
}
