// Frontend is a minimal front end of a search site, in a separate module: it has the ids
// of a page of results, fetches their documents with one call, and renders the page even
// if single documents are missing.
//
//	cd examples/frontend
//	go run . --servers 127.0.0.1:7070 --collection jobs
//	curl 'http://127.0.0.1:8080/search?q=job-00000'
//
// Instead of calling a search engine it lists the ids with the prefix q.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"time"

	"docstore/boxcarrpc"
	"docstore/boxcarrpc/discovery"
	"docstore/docservice"
)

const (
	resultsPerPage = 50
	// pageTimeout is the timeout for the documents of a page.
	pageTimeout = 500 * time.Millisecond
	// hedgeAfter is well above the usual duration of a call: the few calls that take longer
	// are also sent to a second server.
	hedgeAfter = 50 * time.Millisecond
	// poolSize is the maximum number of concurrent calls: peak rate x p99 x 1.5. For 1,000
	// pages per second with two calls of 20 ms each it is 60.
	poolSize = 60
)

// A frontend has one pool for the life of the process, and one client for each collection,
// which caches the compression dictionaries.
type frontend struct {
	pool      *boxcarrpc.Pool
	documents *docservice.Client
}

func newFrontend(servers []string, collection string, logger *slog.Logger) (*frontend, error) {
	// All methods of the service are idempotent: they may be retried when a server dies, and
	// hedged when one is slow.
	methods := docservice.IdempotentMethods()
	for name, method := range methods {
		method.HedgeAfter = hedgeAfter
		methods[name] = method
	}
	pool, err := boxcarrpc.NewPool(discovery.Static(servers...), &boxcarrpc.PoolOptions{
		Size:    poolSize,
		MaxWait: 20 * time.Millisecond, // a short queue for bursts; further calls fail at once
		Methods: methods,
		Name:    "frontend",
		Logger:  logger,
	})
	if err != nil {
		return nil, err
	}
	return &frontend{pool: pool, documents: docservice.NewClient(pool, collection)}, nil
}

func (f *frontend) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /search", f.serveSearch)
	mux.Handle("GET /boxcar", f.pool.Handler()) // this client's slots, for debugging
	return mux
}

// A result is one line of a page.
type result struct {
	ID       string          `json:"id"`
	Document json.RawMessage `json:"document,omitempty"`
	Missing  string          `json:"missing,omitempty"` // why there is no document
}

func (f *frontend) serveSearch(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), pageTimeout)
	defer cancel()
	ids, err := f.search(ctx, r.URL.Query().Get("q"))
	if err != nil {
		fail(w, err)
		return
	}
	results, err := f.results(ctx, ids)
	if err != nil {
		fail(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(results) // the client may have disconnected
}

// search stands for the call of a search engine.
func (f *frontend) search(ctx context.Context, q string) (ids []string, err error) {
	_, err = f.documents.Scan(ctx, docservice.ScanOptions{Prefix: []byte(q), Limit: resultsPerPage, IDsOnly: true},
		func(id string, _ []byte, _ error) error {
			ids = append(ids, id)
			return nil
		})
	return ids, err
}

// results fetches the documents of a page with one call. A missing document does not fail
// the page.
func (f *frontend) results(ctx context.Context, ids []string) ([]result, error) {
	results := make([]result, len(ids))
	err := f.documents.GetMany(ctx, ids, func(i int, document []byte, err error) error {
		results[i].ID = ids[i]
		switch {
		case errors.Is(err, docservice.ErrNotFound): // deleted since the search engine saw it
			results[i].Missing = "gone"
		case err != nil: // no server could read it; a later call may succeed
			results[i].Missing = "unavailable"
		case !json.Valid(document):
			results[i].Missing = "not JSON"
		default:
			results[i].Document = append(json.RawMessage(nil), document...) // valid only until fn returns
		}
		return nil
	})
	return results, err
}

// fail answers with the HTTP status for an error.
func fail(w http.ResponseWriter, err error) {
	status := http.StatusBadGateway
	switch {
	case errors.Is(err, boxcarrpc.ErrPoolBusy): // too many concurrent pages
		status = http.StatusServiceUnavailable
	case errors.Is(err, context.DeadlineExceeded):
		status = http.StatusGatewayTimeout
	}
	http.Error(w, err.Error(), status)
}

func main() {
	servers := flag.String("servers", "127.0.0.1:7070", "addresses of docserviced, comma-separated")
	collection := flag.String("collection", "jobs", "collection to fetch from")
	listen := flag.String("listen", "127.0.0.1:8080", "address to serve on")
	flag.Parse()
	if err := run(strings.Split(*servers, ","), *collection, *listen); err != nil {
		log.Fatal(err)
	}
}

func run(servers []string, collection, listen string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	f, err := newFrontend(servers, collection, slog.Default())
	if err != nil {
		return err
	}
	defer func() { _ = f.pool.Close() }() // the process exits
	ready, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if err := f.pool.WaitReady(ready); err != nil {
		return err
	}
	server := &http.Server{Addr: listen, Handler: f.handler(), ReadHeaderTimeout: time.Second}
	context.AfterFunc(ctx, func() { _ = server.Close() }) // reported by ListenAndServe
	fmt.Printf("http://%s/search?q=\n", listen)
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
