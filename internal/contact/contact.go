// Package contact observes whether a service that a process depends on answers, such as an
// object store or etcd.
//
//	store := contact.New("the object store", logger)
//	b, err := bucket.Open(ctx, url, bucket.Options{Observe: store.Observe})
//	store.Age()     // for a metric
//	store.Problem() // nil: it answers
package contact

import (
	"log/slog"
	"sync"
	"time"
)

// reportInterval is the minimum time between two reports of failures in the log.
const reportInterval = time.Minute

// A Contact records the outcome of each request to a service. It logs the first failure after an
// answer, and that the service answers again, at most once in reportInterval. It is safe for
// concurrent use.
type Contact struct {
	service string
	logger  *slog.Logger

	mu struct {
		sync.Mutex
		answered time.Time // when the service last answered; at first, the time of New
		failed   time.Time // when it first failed since
		problem  error     // of the last request that failed since; nil: none has
		reported time.Time // when a problem was last logged
		told     bool      // the present problem was logged
	}
}

// New returns a Contact with a service of that name. A nil logger discards the log.
func New(service string, logger *slog.Logger) *Contact {
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	c := &Contact{service: service, logger: logger}
	c.mu.answered = time.Now()
	return c
}

// Observe records the outcome of a request; nil: the service has answered.
func (c *Contact) Observe(err error) {
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil {
		if c.mu.told {
			c.logger.Info(c.service+" answers again", "after", now.Sub(c.mu.failed).Round(time.Millisecond))
		}
		c.mu.answered, c.mu.problem, c.mu.told = now, nil, false
		return
	}
	if c.mu.problem == nil {
		c.mu.failed = now
	}
	c.mu.problem = err
	if !c.mu.told && (c.mu.reported.IsZero() || now.Sub(c.mu.reported) >= reportInterval) {
		c.mu.told, c.mu.reported = true, now
		c.logger.Warn(c.service+" does not answer, or refuses; retrying", "error", err)
	}
}

// Age returns the time since the service last answered, or since New if it has not.
func (c *Contact) Age() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Since(c.mu.answered)
}

// Problem returns why the last request failed; nil: the service has answered since.
func (c *Contact) Problem() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.problem
}
