package fleetview

import (
	"bytes"
	"context"
	"embed"
	"encoding/json"
	"fmt"
	"html/template"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"docstore/docservice/placement/fleet"
	"docstore/docservice/readiness"
	"docstore/docservice/server/livepage"
	"docstore/internal/units"
)

const (
	// stateLife is how long a state is reused.
	stateLife = time.Second
	// readTimeout limits a read; then the last state is shown, with the reason.
	readTimeout = 3 * time.Second
)

// Source reads the state of a collection, one of those of the Page.
type Source func(ctx context.Context, collection string) (*fleet.Fleet, error)

// Page serves the states of sharded collections:
//
//	GET /fleet?collection=NAME         the page; without a name that of the first collection
//	GET /fleet/live?collection=NAME    server-sent events: changed sections
//	GET /api/v1/fleet?collection=NAME  a fleet.Fleet as JSON
//
// A state is read at most once per second for any number of viewers, and never without
// viewers. If it cannot be read, the page shows the last one with the reason, and the JSON
// is answered 503.
type Page struct {
	source Source
	logger *slog.Logger
	live   livepage.Live
	order  []string
	states map[string]*current
}

// current is the last state of a collection.
type current struct {
	mu      sync.Mutex // held during a read
	rates   fleet.Rates
	fleet   *fleet.Fleet // nil: none was read yet
	read    time.Time
	problem error // of the last read
}

// NewPage returns a page of collections.
func NewPage(collections []string, source Source, logger *slog.Logger) *Page {
	p := &Page{source: source, logger: logger, order: collections, states: map[string]*current{}}
	for _, name := range collections {
		p.states[name] = &current{}
	}
	return p
}

// Handle adds the page's paths to a mux. The assets are those of livepage.
func (p *Page) Handle(mux *http.ServeMux) {
	mux.HandleFunc("GET /fleet", p.servePage)
	mux.HandleFunc("GET /fleet/live", p.serveLive)
	mux.HandleFunc("GET /api/v1/fleet", p.serveJSON)
}

// view is the input of the templates.
type view struct {
	Collection string
	Others     []string
	Fleet      *fleet.Fleet // nil: none was read yet
	Problem    string
}

// collection returns the collection of a request. If the daemon has none of that name, it
// answers 404.
func (p *Page) collection(w http.ResponseWriter, r *http.Request) (name string, ok bool) {
	if name = r.URL.Query().Get("collection"); name == "" && len(p.order) > 0 {
		name = p.order[0]
	}
	if p.states[name] != nil {
		return name, true
	}
	text := fmt.Sprintf("this daemon serves no sharded collection %q; it serves: %s", name, strings.Join(p.order, ", "))
	if len(p.order) == 0 {
		text = "this daemon serves no sharded collection: it was started without --etcd, or without a collection in an object store"
	}
	http.Error(w, text, http.StatusNotFound)
	return "", false
}

// state returns the state of a collection, and why the last read has failed.
func (p *Page) state(ctx context.Context, name string) (*fleet.Fleet, error) {
	c := p.states[name]
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.read) < stateLife {
		return c.fleet, c.problem
	}
	// Other viewers wait for this read: it does not end with the request.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readTimeout)
	defer cancel()
	f, err := p.source(ctx, name)
	c.read, c.problem = time.Now(), err
	if err == nil {
		c.rates.Add(f)
		c.fleet = f
	}
	return c.fleet, c.problem
}

func (p *Page) view(ctx context.Context, name string) view {
	v := view{Collection: name}
	for _, other := range p.order {
		if other != name {
			v.Others = append(v.Others, other)
		}
	}
	var err error
	if v.Fleet, err = p.state(ctx, name); err != nil {
		v.Problem = err.Error()
		if v.Fleet != nil {
			v.Problem = "as of " + v.Fleet.Time.UTC().Format("15:04:05 UTC") + ": " + v.Problem
		}
	}
	return v
}

func (p *Page) servePage(w http.ResponseWriter, r *http.Request) {
	name, ok := p.collection(w, r)
	if !ok {
		return
	}
	var b bytes.Buffer
	if err := templates.ExecuteTemplate(&b, "page", p.view(r.Context(), name)); err != nil {
		p.failed(w, err)
		return
	}
	livepage.Headers(w, "text/html; charset=utf-8")
	_, _ = w.Write(b.Bytes()) // the client may have disconnected
}

func (p *Page) serveLive(w http.ResponseWriter, r *http.Request) {
	name, ok := p.collection(w, r)
	if !ok {
		return
	}
	if err := p.live.Serve(w, r, templates, sections, func() any { return p.view(r.Context(), name) }); err != nil {
		p.logger.Error("updating the fleet page failed", "error", err)
	}
}

func (p *Page) serveJSON(w http.ResponseWriter, r *http.Request) {
	name, ok := p.collection(w, r)
	if !ok {
		return
	}
	f, err := p.state(r.Context(), name)
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	body, err := json.MarshalIndent(f, "", "  ")
	if err != nil {
		p.failed(w, err)
		return
	}
	livepage.Headers(w, "application/json")
	_, _ = w.Write(append(body, '\n')) // the client may have disconnected
}

func (p *Page) failed(w http.ResponseWriter, err error) {
	p.logger.Error("rendering the fleet page failed", "error", err)
	http.Error(w, "rendering the page failed: "+err.Error(), http.StatusInternalServerError)
}

// sections are the parts of the page that are updated: names of templates and ids of
// elements.
var sections = []string{"summary", "columns", "moves"}

//go:embed assets
var assets embed.FS

var templates = template.Must(template.New("").Funcs(template.FuncMap{
	"bytes":     units.FormatBytes,
	"summary":   summary,
	"manifests": func(r *fleet.Row) string { return Manifests(*r) },
	"rate":      Rate,
	"class":     class,
	"page":      page,
	"numbers":   numbers,
	"grid":      grid,
}).ParseFS(assets, "assets/*.html"))

// class returns the class of the state of a server.
func class(r *fleet.Row) string {
	switch readiness.State(r.State()) {
	case readiness.Ready:
		return "good"
	case readiness.Faulted:
		return "bad"
	}
	return "warn"
}

func summary(v view) []string {
	if v.Fleet == nil {
		return nil
	}
	return Summary(v.Fleet)
}

// page returns the URL of a server's own page, or nothing. Servers report it: other schemes
// than those of HTTP are not linked.
func page(r *fleet.Row) string {
	if strings.HasPrefix(r.Page, "http://") || strings.HasPrefix(r.Page, "https://") {
		return r.Page
	}
	return ""
}

// maxRows limits the rows that the page shows; the JSON has all.
const maxRows = 32

// numbers returns the numbers of the rows.
func numbers(f *fleet.Fleet) []int {
	rows := 0
	for _, c := range f.Columns {
		for _, r := range c.Rows {
			rows = max(rows, r.Row+1)
		}
	}
	all := make([]int, min(rows, maxRows))
	for i := range all {
		all[i] = i
	}
	return all
}

// gridRow is a column with its servers by number; nil: the number is free.
type gridRow struct {
	fleet.Column
	Cells []*fleet.Row
}

func grid(f *fleet.Fleet) []gridRow {
	rows := make([]gridRow, 0, len(f.Columns))
	for _, c := range f.Columns {
		one := gridRow{Column: c}
		for _, n := range numbers(f) {
			i := slices.IndexFunc(c.Rows, func(r fleet.Row) bool { return r.Row == n })
			if i < 0 {
				one.Cells = append(one.Cells, nil)
			} else {
				one.Cells = append(one.Cells, &c.Rows[i])
			}
		}
		rows = append(rows, one)
	}
	return rows
}
