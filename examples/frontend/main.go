// Frontend is a search site's front end, as small as it can be: it has the ids of a
// page of results, fetches their documents with one call, and renders what it got,
// whatever became of single documents.
//
//	go run ./examples/frontend --servers 127.0.0.1:7070 --collection jobs
//	curl 'http://127.0.0.1:8080/search?q=job-00000'
//
// In place of a search engine it lists ids that begin with q.
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
	// pageTimeout is what a page's documents may take. A user waits no longer.
	pageTimeout = 500 * time.Millisecond
	// hedgeAfter is well above the usual time of a page: the few calls that take longer
	// are sent to a second server, too.
	hedgeAfter = 50 * time.Millisecond
	// poolSize is how many calls there may be at once: peak rate x p99 x 1.5. For 1,000
	// pages a second, of two calls of 20 ms each, that is 60.
	poolSize = 60
)

// A frontend has one pool of connections for the life of the process, and one client for
// each collection, which keeps the dictionaries that documents are compressed with.
type frontend struct {
	pool      *boxcarrpc.Pool
	documents *docservice.Client
}

func newFrontend(servers []string, collection string, logger *slog.Logger) (*frontend, error) {
	// All of the service's methods may be asked again elsewhere when a server dies, and
	// these may be asked twice when one is slow.
	methods := docservice.IdempotentMethods()
	for name, method := range methods {
		method.HedgeAfter = hedgeAfter
		methods[name] = method
	}
	pool, err := boxcarrpc.NewPool(discovery.Static(servers...), &boxcarrpc.PoolOptions{
		Size:    poolSize,
		MaxWait: 20 * time.Millisecond, // a short queue, for bursts; more is refused at once
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
	mux.Handle("GET /boxcar", f.pool.Handler()) // this client's ladder of slots, for people
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
	_ = json.NewEncoder(w).Encode(results) // who has hung up has nothing to be told
}

// search is where a search engine would be asked.
func (f *frontend) search(ctx context.Context, q string) (ids []string, err error) {
	_, err = f.documents.Scan(ctx, docservice.ScanOptions{Prefix: []byte(q), Limit: resultsPerPage, IDsOnly: true},
		func(id string, _ []byte, _ error) error {
			ids = append(ids, id)
			return nil
		})
	return ids, err
}

// results fetches a page of documents with one call. A document that is missing leaves a
// hole in the page, and does not fail it.
func (f *frontend) results(ctx context.Context, ids []string) ([]result, error) {
	results := make([]result, len(ids))
	err := f.documents.GetMany(ctx, ids, func(i int, document []byte, err error) error {
		results[i].ID = ids[i]
		switch {
		case errors.Is(err, docservice.ErrNotFound): // deleted since the search engine saw it
			results[i].Missing = "gone"
		case err != nil: // no server has it whole; the next try may find one
			results[i].Missing = "unavailable"
		case !json.Valid(document):
			results[i].Missing = "not JSON"
		default:
			results[i].Document = append(json.RawMessage(nil), document...) // it is valid until fn returns
		}
		return nil
	})
	return results, err
}

// fail says in HTTP why a page could not be made.
func fail(w http.ResponseWriter, err error) {
	status := http.StatusBadGateway
	switch {
	case errors.Is(err, boxcarrpc.ErrPoolBusy): // more pages at once than the pool has room for
		status = http.StatusServiceUnavailable
	case errors.Is(err, context.DeadlineExceeded):
		status = http.StatusGatewayTimeout
	}
	http.Error(w, err.Error(), status)
}

func main() {
	servers := flag.String("servers", "127.0.0.1:7070", "addresses of docserviced, with commas between")
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
	defer func() { _ = f.pool.Close() }() // the process ends
	ready, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if err := f.pool.WaitReady(ready); err != nil {
		return err
	}
	server := &http.Server{Addr: listen, Handler: f.handler(), ReadHeaderTimeout: time.Second}
	context.AfterFunc(ctx, func() { _ = server.Close() }) // the next line tells
	fmt.Printf("http://%s/search?q=\n", listen)
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
