package simulate

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"docstore/docservice/readiness"
	"docstore/docservice/server"
	"docstore/internal/ctxtime"
)

const (
	// probeInterval is the pause between two probes of a server, and scrapeEach the number of
	// probes for each scrape of its metrics.
	probeInterval = 5 * time.Second
	scrapeEach    = 3
	// probeTime bounds a probe. A server without faults of its network answers before.
	probeTime = 2 * time.Second
)

// prober asks a server for its health, readiness and metrics over HTTP, as orchestrators and
// Prometheus do, and compares the answers with the state of the server.
type prober struct {
	w       *world
	h       *serverHost
	scraped *serverProcess // of the history
	history history
}

// run probes the server until ctx ends.
func (p *prober) run(ctx context.Context) {
	for n := 0; ctxtime.Sleep(ctx, probeInterval); n++ {
		p.health()
		p.readiness()
		p.partialFiles()
		if n%scrapeEach == 0 {
			p.metrics()
		}
	}
}

// get asks on a new connection. Without an answer, status is 0.
func (p *prober) get(path string) (status int, body string) {
	ctx, cancel := context.WithTimeout(context.Background(), probeTime)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.w.access.scheme()+p.h.http()+path, http.NoBody)
	p.w.must(err)
	p.w.access.authorize(request, clientToken)
	transport := &http.Transport{DialContext: p.w.clients.Dial, TLSClientConfig: p.w.access.clientTLS(), DisableKeepAlives: true}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return 0, ""
	}
	content, err := io.ReadAll(response.Body)
	if closeErr := response.Body.Close(); err != nil || closeErr != nil {
		return 0, ""
	}
	return response.StatusCode, string(content)
}

// health checks that a server that runs answers, unless the network explains that it does not.
func (p *prober) health() {
	began, before := time.Now(), p.h.serving()
	status, _ := p.get("/healthz")
	explained := status == 0 && p.w.networkFault(p.h, began)
	if before != nil && before == p.h.serving() && status != http.StatusOK && !explained {
		p.w.account.wrongf("health", "%s runs, and /healthz answers %d", p.h.name, status)
	}
}

// serving returns the server of the process, nil if it does not run or is about to end.
func (h *serverHost) serving() *server.Server {
	if s := h.started(); s != nil && !s.Ending() {
		return s
	}
	return nil
}

// networkFaults are the kinds of faults for which a server may not answer.
var networkFaults = []string{"server isolated", "server silent", "server connections reset", "server link slow", "zone partition"}

// networkFault reports whether a fault of the network of a server has been active since a time.
func (w *world) networkFault(h *serverHost, since time.Time) bool {
	return slices.ContainsFunc(w.config.Faults, func(f Fault) bool {
		begins := w.start.Add(f.At)
		return slices.Contains(networkFaults, f.Kind) && (f.Target == "" || f.Target == h.name) &&
			!begins.After(time.Now()) && !begins.Add(f.For).Before(since)
	})
}

// readiness checks that /readyz answers as the server is before and after.
func (p *prober) readiness() {
	s := p.h.serving()
	if s == nil {
		return
	}
	before := s.Ready()
	status, body := p.get("/readyz")
	if status == 0 || p.h.serving() != s || s.Ready() != before {
		return
	}
	var answer server.Readiness
	if err := json.Unmarshal([]byte(body), &answer); err != nil {
		p.w.account.wrongf("readiness", "%s: %v in %s", p.h.name, err, body)
		return
	}
	if answer.Ready != before || answer.Ready != (status == http.StatusOK) {
		p.w.account.wrongf("readiness", "%s is ready: %v, and /readyz answers %d %s", p.h.name, before, status, body)
	}
	for name, c := range answer.Collections {
		if c.Ready == (c.Reason != "") || c.Ready != (c.State == readiness.Ready) {
			p.w.account.wrongf("readiness", "%s is ready for %s: %v, in the state %q, for the reason %q", p.h.name, name, c.Ready, c.State, c.Reason)
		}
		if made := c.Progress; made != nil && (c.Ready || made.Done < 0 || made.Done > made.Total || made.FilesDone > made.Files) {
			p.w.account.wrongf("readiness", "%s is %s, with the progress %+v", p.h.name, c.State, *made)
		}
	}
}

// metrics judges the alerts that the metrics of the server raise.
func (p *prober) metrics() {
	s := p.h.serving()
	before := s != nil && s.Ready()
	alerts, answered := p.alerts()
	switch {
	case p.h.serving() != s:
	case !answered:
		p.w.checkRaised(p.h.name, false, []string{down})
	default:
		p.w.checkRaised(p.h.name, false, alerts)
		if s != nil && !before && !s.Ready() && !slices.Contains(alerts, notReady) {
			p.w.account.wrongf("alerts", "%s is not ready, and does not raise %s", p.h.name, notReady)
		}
	}
}

// partialTime is more than the time from the end of a fetch until its file is renamed or removed.
const partialTime = time.Second

// partialFiles checks that a failed fetch has removed its partial file.
func (p *prober) partialFiles() {
	process := p.h.current()
	if process == nil {
		return
	}
	before := p.h.abandoned(process)
	if len(before) == 0 {
		return
	}
	time.Sleep(partialTime)
	for name, written := range p.h.abandoned(process) {
		if before[name].Equal(written) && p.h.current() == process {
			p.w.account.wrongf("files", "%s has left %s of a fetch that failed", p.h.name, name)
		}
	}
}

// abandoned returns the partial files that a process has written and closed while its disk did not fail,
// with the times at which they were written.
func (h *serverHost) abandoned(p *serverProcess) map[string]time.Time {
	h.mu.Lock()
	since, fails := p.started, h.mu.diskFaults > 0
	if h.mu.diskFailed.After(since) {
		since = h.mu.diskFailed
	}
	h.mu.Unlock()
	if fails || since.IsZero() {
		return nil
	}
	parts, err := h.disk.Find(dataDir, "*.part")
	h.w.must(err)
	written, open := map[string]time.Time{}, p.files.OpenFiles()
	for _, part := range parts {
		info, err := h.disk.Files().Stat(part.Name)
		if err == nil && !slices.Contains(open, part.Name) && info.ModTime.After(since) {
			written[part.Name] = info.ModTime
		}
	}
	return written
}

// alerts returns the alerts that the metrics of the server raise.
func (p *prober) alerts() (names []string, answered bool) {
	process := p.h.current()
	status, metrics := p.get("/metrics")
	if status == 0 {
		p.w.scraped(p.h.name, nil)
		return nil, false
	}
	alerts, err := readAlerts()
	p.w.must(err)
	values, err := parseMetrics(alerts, metrics)
	if status != http.StatusOK || err != nil {
		p.w.account.wrongf("metrics", "%s answers %d: %v", p.h.name, status, err)
		return nil, true
	}
	if p.scraped != process {
		p.scraped, p.history = process, nil
	}
	p.history.add(scrape{time.Now(), values})
	return raised(alerts, p.history, p.w.scraped(p.h.name, values)), true
}

// scraped records the values of a server, and returns the highest ones of all servers.
func (w *world) scraped(server string, values map[string]float64) (most map[string]float64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.scrapes[server] = values
	most = map[string]float64{}
	for _, of := range w.mu.scrapes {
		for series, value := range of {
			most[series] = max(most[series], value)
		}
	}
	return most
}

// checkAlerts waits until no server raises an alert. It asks all servers each time, because some
// alerts compare them.
func (w *world) checkAlerts() {
	w.await("alerts", "servers", func() string {
		var raised []string
		for _, p := range w.probers {
			alerts, answered := p.alerts()
			if !answered {
				alerts = []string{"no metrics"}
			}
			if len(alerts) > 0 {
				raised = append(raised, p.h.name+": "+strings.Join(alerts, ", "))
			}
		}
		return strings.Join(raised, "; ")
	})
}

// probe judges the alerts of append until ctx ends.
func (u *updater) probe(ctx context.Context) {
	for ctxtime.Sleep(ctx, scrapeEach*probeInterval) {
		u.mu.Lock()
		p := u.mu.process
		u.mu.Unlock()
		if p == nil || p.live.Load() == nil {
			continue
		}
		var alerts []string
		state := p.live.Load().State()
		if state.Failing {
			alerts = append(alerts, publishError)
		}
		if state.Stopped {
			alerts = append(alerts, announceStopped)
		}
		u.w.checkRaised(u.name, true, alerts)
	}
}
