package livepage

import (
	"bytes"
	"context"
	"embed"
	"encoding/json"
	"html/template"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"docstore/docs"
	"docstore/docservice/explain"
)

const (
	// statusLife is how long a status is reused.
	statusLife = time.Second
	// fellAfter is the interval of checking which parts of filters are in memory; parts
	// that left since the previous check are marked.
	fellAfter = 10 * time.Second
	// liveWriteTimeout is how long a viewer may block a write.
	liveWriteTimeout = 10 * time.Second
	// MaxViewers is the maximum number of live viewers. One more takes the place of the oldest
	// of the client that has most, or is answered 503 if no client has more than its own. A
	// viewer without a place keeps the page as it is.
	MaxViewers = 64
)

// Source is the daemon. Its methods must be safe for concurrent use.
type Source interface {
	// Status returns the state of the daemon, except latencies and cold reads, which Page
	// computes.
	Status() Status
	// Sample is called every second and must be cheap.
	Sample() Sample
	// LookUp looks up a document; versions also requests its history.
	LookUp(ctx context.Context, collection, id string, versions bool) LookUp
	// Explain states why an id is served or not by this server; history also searches the queue.
	Explain(ctx context.Context, collection, id string, history bool) explain.Report
	// Browse lists ids with a prefix, after the id after.
	Browse(ctx context.Context, collection, prefix, after string) Listing
	// Diagnostics returns the log and the settings.
	Diagnostics() Diagnostics
	// Discloses reports whether the caller of a request may see the diagnostics.
	Discloses(ctx context.Context) bool
}

//go:embed assets
var assets embed.FS

// Page serves the state of a Source.
type Page struct {
	source   Source
	logger   *slog.Logger
	recorder recorder
	lookUps  bool
	live     Live

	mu struct {
		sync.Mutex
		status  *view
		looked  time.Time
		before  map[string]residency // by collection, at looked and at the check before
		current map[string]residency
	}
}

// New returns a Page. lookUps enables the lookup of documents and the list of ids.
func New(source Source, lookUps bool, logger *slog.Logger) *Page {
	return &Page{source: source, logger: logger, lookUps: lookUps}
}

// Run samples until ctx ends.
func (p *Page) Run(ctx context.Context) {
	ticker := time.NewTicker(sampleInterval)
	defer ticker.Stop()
	for {
		p.recorder.add(p.source.Sample())
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// Handle adds the page's paths to a mux. admit applies the limits of requests for documents;
// the page itself has none.
func (p *Page) Handle(mux *http.ServeMux, admit func(http.HandlerFunc) http.HandlerFunc) {
	mux.HandleFunc("GET /{$}", p.servePage)
	mux.HandleFunc("GET /live", p.serveLive)
	mux.HandleFunc("GET /api/v1/status", p.serveStatus)
	mux.HandleFunc("GET /lookup", admit(p.serveLookUp))
	mux.HandleFunc("GET /explain", admit(p.serveExplain))
	mux.HandleFunc("GET /browse", admit(p.serveBrowse))
	mux.Handle("GET /assets/", http.FileServerFS(assets))
	mux.HandleFunc("GET /guides/{name}", serveGuide)
}

// Headers sets the headers of a page, which restrict it to its own resources.
func Headers(w http.ResponseWriter, contentType string) {
	h := w.Header()
	h.Set("Content-Type", contentType)
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'")
}

func (p *Page) servePage(w http.ResponseWriter, r *http.Request) {
	p.serveTemplate(w, "page", p.viewFor(r), http.StatusOK)
}

// serveTemplate answers with a complete page.
func (p *Page) serveTemplate(w http.ResponseWriter, name string, v view, status int) {
	var b bytes.Buffer
	if err := templates.ExecuteTemplate(&b, name, v); err != nil {
		p.failed(w, err)
		return
	}
	Headers(w, "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(b.Bytes()) // the client may have disconnected
}

func (p *Page) serveStatus(w http.ResponseWriter, _ *http.Request) {
	body, err := json.MarshalIndent(p.view().Status, "", "  ")
	if err != nil {
		p.failed(w, err)
		return
	}
	Headers(w, "application/json")
	_, _ = w.Write(append(body, '\n')) // the client may have disconnected
}

const noLookUps = "documents cannot be looked up: the daemon was started without --http-lookup"

func (p *Page) serveLookUp(w http.ResponseWriter, r *http.Request) {
	if !p.lookUps {
		http.Error(w, noLookUps, http.StatusForbidden)
		return
	}
	query := r.URL.Query()
	versions := query.Get("versions") != "" && r.Method != http.MethodHead // reads the whole queue
	result := p.source.LookUp(r.Context(), query.Get("collection"), query.Get("id"), versions)
	status := http.StatusOK
	if !result.Found {
		status = http.StatusNotFound
	}
	v := p.view()
	v.LookUp = &result
	p.serveTemplate(w, "lookup-page", v, status)
}

// serveGuide answers with a guide as text.
func serveGuide(w http.ResponseWriter, r *http.Request) {
	text, err := docs.Guides.ReadFile(r.PathValue("name"))
	if err != nil {
		http.Error(w, "no such guide; /guides/README.md lists them", http.StatusNotFound)
		return
	}
	Headers(w, "text/plain; charset=utf-8")
	_, _ = w.Write(text) // the client may have disconnected
}

func (p *Page) serveExplain(w http.ResponseWriter, r *http.Request) {
	if !p.lookUps {
		http.Error(w, noLookUps, http.StatusForbidden)
		return
	}
	query := r.URL.Query()
	report := p.source.Explain(r.Context(), query.Get("collection"), query.Get("id"), r.Method != http.MethodHead)
	v := p.view()
	v.Report = &report
	p.serveTemplate(w, "explain-page", v, http.StatusOK)
}

func (p *Page) failed(w http.ResponseWriter, err error) {
	p.logger.Error("rendering the page failed", "error", err)
	http.Error(w, "rendering the page failed: "+err.Error(), http.StatusInternalServerError)
}

// serveLive sends the changed sections each second until the viewer disconnects.
func (p *Page) serveLive(w http.ResponseWriter, r *http.Request) {
	err := p.live.Serve(w, r, templates, sections, func() any { return p.viewFor(r) })
	if err != nil {
		p.logger.Error("updating the page failed", "error", err)
	}
}

// view is the input of the templates.
type view struct {
	Status
	Samples []Sample
	Heat    []heatMap // by collection
	LookUps bool
	LookUp  *LookUp
	Report  *explain.Report
	Listing *Listing
	Client  string // show only the slots of this client; empty: all
	// Diagnostics is nil if the caller may not see them.
	Diagnostics *diagnostics
}

// viewFor returns the view for the caller and the parameters of a request.
func (p *Page) viewFor(r *http.Request) view {
	v := p.view()
	v.Client = r.URL.Query().Get("client")
	if !p.source.Discloses(r.Context()) {
		v.Diagnostics = nil
	}
	return v
}

// view returns the current view, with all that any caller may see.
func (p *Page) view() view {
	p.mu.Lock()
	defer p.mu.Unlock()
	if v := p.mu.status; v != nil && time.Since(v.Time) < statusLife {
		return *v
	}
	v := view{Status: p.source.Status(), Samples: p.recorder.history(), LookUps: p.lookUps, Diagnostics: diagnosticsOf(p.source.Diagnostics())}
	v.Latencies = latencies(v.Samples)
	if v.Latencies == nil {
		v.Latencies = []Latency{}
	}
	v.Heat = make([]heatMap, len(v.Collections))
	now := make(map[string]residency, len(v.Collections))
	for i := range v.Collections {
		c := &v.Collections[i]
		c.Freshness = freshness(v.Samples, c.Name, func(s CollectionSample) Histogram { return s.Freshness })
		c.Canaries = freshness(v.Samples, c.Name, func(s CollectionSample) Histogram { return s.Canaries })
		c.Queue.ColdReads = coldReads(v.Samples, c.Name, func(s CollectionSample) Histogram { return s.ColdQueue })
		c.Index.ColdReads = coldReads(v.Samples, c.Name, func(s CollectionSample) Histogram { return s.ColdIndex })
		v.Heat[i] = newHeatMap(&c.Index.Filter, p.mu.before[c.Name])
		now[c.Name] = v.Heat[i].residency()
	}
	if time.Since(p.mu.looked) >= fellAfter {
		p.mu.before, p.mu.current, p.mu.looked = p.mu.current, now, time.Now()
	}
	p.mu.status = &v
	return v
}

var templates = template.Must(template.New("").Funcs(functions).ParseFS(assets, "assets/*.html"))
