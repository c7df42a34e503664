package simulate

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"docstore/docservice"
	"docstore/queue/shard"
)

// calmTime is the time after a start and after the end of a fault in which requests may fail: clients
// connect again after pauses.
const calmTime = time.Minute

// disturbing are words in the kinds of faults for which a server that runs may not answer in time.
var disturbing = slices.Concat(networkWords, []string{"disk", "memcached away", "drained"})

// failed judges that a request failed, and not only the answer for an id. A server that is not complete
// refuses pages, and batches without a document.
func (c *asker) failed(q question, what string, err error) {
	var response statusError
	if errors.Is(err, docservice.ErrUnavailable) || errors.As(err, &response) && response == http.StatusServiceUnavailable {
		c.w.account.other("unavailable")
		return
	}
	c.w.account.other("error")
	if isRefused(err) {
		c.w.account.wrongf("access", "%s: %s: the client is refused: %v", c.name, what, err)
		return
	}
	if c.patient && q.whole && c.w.isWhole() && !slices.ContainsFunc(q.servers, func(name string) bool { return c.w.host(name).disturbed(q.began) }) {
		c.w.account.wrongf("failed", "%s: %s: %v, after %v", c.name, what, err, time.Since(q.began))
	}
}

// listTime is the time in which clients learn of a server that serves its shards again.
const listTime = 5 * time.Second

// isWhole reports whether each shard is served by a server that clients know.
func (w *world) isWhole() bool {
	if w.etcd == nil {
		return true
	}
	whole := true
	for s := range w.layout.Shards {
		whole = whole && slices.ContainsFunc(w.servers, func(h *serverHost) bool { return h.leases() && h.holds(shard.Name(collectionName, s)) })
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if !whole {
		w.mu.partial = time.Now()
	}
	return whole && time.Since(w.mu.partial) > listTime
}

// leases reports whether the server runs and is not drained.
func (h *serverHost) leases() bool {
	s := h.serving()
	return s != nil && !s.Boxcar().Stats().Draining
}

// statusError is the status of a response over HTTP that is none of those expected.
type statusError int

func (e statusError) Error() string { return fmt.Sprint("the status ", int(e)) }

// disturbed reports whether requests that began at a time may fail: the server starts or ends, or has a
// fault of its network or disk, or had one a short time before.
func (h *serverHost) disturbed(began time.Time) bool {
	h.mu.Lock()
	p := h.mu.process
	h.mu.Unlock()
	if h.w.config.Destructive || p == nil || !h.leases() || began.Before(p.started.Add(calmTime)) {
		return true
	}
	return slices.ContainsFunc(h.w.config.Faults, func(f Fault) bool {
		begins := h.w.start.Add(f.At)
		return (f.Target == "" || f.Target == h.name) && begins.Before(time.Now()) && began.Before(begins.Add(2*f.For+calmTime)) &&
			slices.ContainsFunc(disturbing, func(word string) bool { return strings.Contains(f.Kind, word) })
	})
}
