package livepage

import (
	"bytes"
	"context"
	"embed"
	"encoding/json"
	"fmt"
	"html/template"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"
)

const (
	// statusLife is for how long a status serves all who ask.
	statusLife = time.Second
	// fellAfter is between two looks at what filters have in memory: what has
	// left since the one before shows as fallen out.
	fellAfter = 10 * time.Second
	// liveWriteTimeout is how long a viewer may take nothing of what is sent.
	liveWriteTimeout = 10 * time.Second
	// MaxViewers bounds those who follow the page at one time; others are
	// answered 503 and see the page as it was when they loaded it.
	MaxViewers = 64
)

// Source is the daemon. Its methods are called by many goroutines.
type Source interface {
	// Status tells everything but latencies, which are the Page's to work out.
	Status() Status
	// Sample is called every second and has to be cheap.
	Sample() Sample
	// LookUp looks for a document; versions asks for its history, too.
	LookUp(ctx context.Context, collection, id string, versions bool) LookUp
}

//go:embed assets
var assets embed.FS

// Page serves what a Source tells. Its paths are those of Handle.
type Page struct {
	source   Source
	logger   *slog.Logger
	recorder recorder
	lookUps  bool

	mu struct {
		sync.Mutex
		status  *view
		viewers int
		looked  time.Time
		before  map[string]residency // by collection, at looked and the look before
		current map[string]residency
	}
}

// New makes a Page. lookUps allows documents to be looked up.
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

// Handle adds the page's paths to a mux.
func (p *Page) Handle(mux *http.ServeMux) {
	mux.HandleFunc("GET /{$}", p.servePage)
	mux.HandleFunc("GET /live", p.serveLive)
	mux.HandleFunc("GET /api/v1/status", p.serveStatus)
	mux.HandleFunc("GET /lookup", p.serveLookUp)
	mux.Handle("GET /assets/", http.FileServerFS(assets))
}

// headers allow the page what it needs, and nothing from elsewhere.
func headers(w http.ResponseWriter, contentType string) {
	h := w.Header()
	h.Set("Content-Type", contentType)
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'")
}

func (p *Page) servePage(w http.ResponseWriter, r *http.Request) {
	v := p.view().selecting(r)
	var b bytes.Buffer
	if err := templates.ExecuteTemplate(&b, "page", v); err != nil {
		p.failed(w, err)
		return
	}
	headers(w, "text/html; charset=utf-8")
	_, _ = w.Write(b.Bytes()) // who has hung up has nothing to be told
}

func (p *Page) serveStatus(w http.ResponseWriter, _ *http.Request) {
	body, err := json.MarshalIndent(p.view().Status, "", "  ")
	if err != nil {
		p.failed(w, err)
		return
	}
	headers(w, "application/json")
	_, _ = w.Write(append(body, '\n')) // as above
}

func (p *Page) serveLookUp(w http.ResponseWriter, r *http.Request) {
	if !p.lookUps {
		http.Error(w, "documents cannot be looked up here: the daemon was not started with that", http.StatusForbidden)
		return
	}
	query := r.URL.Query()
	v := p.view().selecting(r)
	result := p.source.LookUp(r.Context(), query.Get("collection"), query.Get("id"), query.Get("versions") != "")
	v.LookUp = &result
	var b bytes.Buffer
	if err := templates.ExecuteTemplate(&b, "lookup-page", v); err != nil {
		p.failed(w, err)
		return
	}
	headers(w, "text/html; charset=utf-8")
	if !result.Found {
		w.WriteHeader(http.StatusNotFound)
	}
	_, _ = w.Write(b.Bytes()) // as above
}

func (p *Page) failed(w http.ResponseWriter, err error) {
	p.logger.Error("the page cannot be shown", "error", err)
	http.Error(w, "the page cannot be shown: "+err.Error(), http.StatusInternalServerError)
}

// serveLive sends the sections that have changed, each second, until the viewer
// goes.
func (p *Page) serveLive(w http.ResponseWriter, r *http.Request) {
	if !p.addViewer() {
		http.Error(w, fmt.Sprintf("%d others are watching, which is the most; reload to see what is new", MaxViewers), http.StatusServiceUnavailable)
		return
	}
	defer p.removeViewer()
	headers(w, "text/event-stream")
	control := http.NewResponseController(w)
	ticker := time.NewTicker(statusLife)
	defer ticker.Stop()
	sent := map[string]string{}
	for {
		events, err := p.events(p.view().selecting(r), sent)
		if err != nil {
			p.logger.Error("the page cannot be kept current", "error", err)
			return
		}
		if err := control.SetWriteDeadline(time.Now().Add(liveWriteTimeout)); err != nil {
			return
		}
		if _, err := w.Write(events); err != nil {
			return
		}
		if err := control.Flush(); err != nil {
			return
		}
		select {
		case <-r.Context().Done():
			return
		case <-ticker.C:
		}
	}
}

func (p *Page) addViewer() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.viewers >= MaxViewers {
		return false
	}
	p.mu.viewers++
	return true
}

func (p *Page) removeViewer() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.viewers--
}

// events renders all sections and returns those that differ from what was sent as
// server-sent events, named after them.
func (p *Page) events(v view, sent map[string]string) ([]byte, error) {
	var events, section bytes.Buffer
	for _, name := range sections {
		section.Reset()
		if err := templates.ExecuteTemplate(&section, name, v); err != nil {
			return nil, err
		}
		text := section.String()
		if sent[name] == text {
			continue
		}
		sent[name] = text
		fmt.Fprintf(&events, "event: %s\n", name)
		for line := range strings.Lines(text) {
			fmt.Fprintf(&events, "data: %s\n", strings.TrimRight(line, "\r\n"))
		}
		events.WriteString("\n")
	}
	if events.Len() == 0 {
		events.WriteString(": nothing new\n\n")
	}
	return events.Bytes(), nil
}

// view is what the templates show.
type view struct {
	Status
	Samples []Sample
	Heat    []heatMap // of each collection
	LookUps bool
	LookUp  *LookUp
	Client  string // whose slots alone are shown; empty: all
}

// selecting is the view as a request wants it.
func (v view) selecting(r *http.Request) view {
	v.Client = r.URL.Query().Get("client")
	return v
}

// view returns the status for now.
func (p *Page) view() view {
	p.mu.Lock()
	defer p.mu.Unlock()
	if v := p.mu.status; v != nil && time.Since(v.Time) < statusLife {
		return *v
	}
	v := view{Status: p.source.Status(), Samples: p.recorder.history(), LookUps: p.lookUps}
	v.Latencies = latencies(v.Samples)
	if v.Latencies == nil {
		v.Latencies = []Latency{}
	}
	v.Heat = make([]heatMap, len(v.Collections))
	now := make(map[string]residency, len(v.Collections))
	for i := range v.Collections {
		c := &v.Collections[i]
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
