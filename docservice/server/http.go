package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"strings"
	"time"

	"docstore/boxcarrpc"
	"docstore/boxcarrpc/budget"
	"docstore/docservice"
	"docstore/docservice/collection"
	"docstore/docservice/server/internal/bounded"
	"docstore/docservice/server/internal/httpapi"
	"docstore/docservice/server/livepage"
)

// Limits of the HTTP listener. The write timeout is long: profiles take as long as
// requested, and documents may be large.
const (
	httpHeaderTimeout = 5 * time.Second
	httpReadTimeout   = 10 * time.Second
	httpWriteTimeout  = 2 * time.Minute
	httpIdleTimeout   = time.Minute
	httpHeaderBytes   = 64 << 10
	httpMaxConns      = 1 << 10 // one more is closed, or replaces one of a client that has not authenticated
	// Memory charged for the buffers of a request.
	httpRequestBytes = 32 << 10
	// Maximum wait of a request for memory; then it is answered 503.
	httpMemoryWait = 10 * time.Second
)

// charged charges the memory of each request to the budget of messages until its response
// has been written.
func charged(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := bounded.ConnOf(r.Context())
		if c == nil {
			next.ServeHTTP(w, r) // in a test, without a connection
			return
		}
		ctx := &RequestContext{Context: r.Context()}
		ctx.Reservation.Account = c.Account()
		defer ctx.Reservation.Release()
		ctx.Reservation.Fit(httpRequestBytes, httpRequestBytes)
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// withIdentity returns the request with its caller.
func withIdentity(r *http.Request, identity boxcarrpc.Identity) *http.Request {
	if ctx, ok := r.Context().(*RequestContext); ok {
		ctx.Identity = identity
		return r
	}
	return r.WithContext(WithIdentity(r.Context(), identity))
}

// reserve waits for the memory of a response of about n bytes. If there is none it answers
// 503 and returns false.
func reserve(w http.ResponseWriter, r *http.Request, n int) bool {
	ctx, cancel := context.WithTimeout(r.Context(), httpMemoryWait)
	defer cancel()
	if err := budget.Reserve(ctx, n); err != nil {
		httpapi.Errorf(httpapi.CodeUnavailable, noMemory).Write(w)
		return false
	}
	return true
}

const noMemory = "no memory for the response: other responses use what --memory allows; retry"

func newHTTPServer(d *Server, page *livepage.Page) *http.Server {
	return &http.Server{
		Handler: aging(charged(d.options.HTTP.onlyOwnHosts(d.options.HTTP.shared(d.options.HTTP.guard(d.auth, newHTTPHandler(d, page)))))),
		ConnContext: func(ctx context.Context, conn net.Conn) context.Context {
			if c := bounded.Below(conn); c != nil {
				return bounded.WithConn(ctx, c)
			}
			return ctx
		},
		TLSConfig:         d.options.HTTP.tls(d.auth),
		ReadHeaderTimeout: httpHeaderTimeout,
		ReadTimeout:       httpReadTimeout,
		WriteTimeout:      httpWriteTimeout,
		IdleTimeout:       httpIdleTimeout,
		MaxHeaderBytes:    httpHeaderBytes,
		ErrorLog:          slog.NewLogLogger(d.options.Logger.Handler(), slog.LevelWarn), // otherwise it writes plain text into a JSON log
	}
}

const (
	documentsPath   = "/documents/"
	collectionsPath = "/collections"
)

func newHTTPHandler(d *Server, page *livepage.Page) http.Handler {
	mux, access := http.NewServeMux(), &d.options.HTTP
	admitted := func(next http.HandlerFunc) http.HandlerFunc { return d.admitHTTP(d.options.Tracer.HTTP(next)) }
	page.Handle(mux, admitted)
	if d.parts.Routes != nil {
		d.parts.Routes(mux)
	}
	api := newDocumentAPI(d)
	served := func(next http.HandlerFunc) http.HandlerFunc {
		return access.ifLookUps(admitted(next))
	}
	debug := func(next http.HandlerFunc) http.HandlerFunc { return access.ifDebug(d.ifPermittedAll(next)) }
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", d.serveReady)
	mux.HandleFunc("GET /openapi.yaml", serveOpenAPI)
	mux.HandleFunc("GET /collections", served(d.serveCollections))
	mux.HandleFunc("GET /collections/{collection}/ids", served(d.serveIDs))
	mux.HandleFunc("GET /collections/{collection}/count", served(d.serveCount))
	mux.HandleFunc("GET /collections/{collection}/export", batchByDefault(served(d.serveExport)))
	mux.Handle("GET /metrics", d.metrics.handler())
	mux.HandleFunc("/debug/pprof/", debug(pprof.Index))
	mux.HandleFunc("/debug/pprof/cmdline", debug(pprof.Cmdline))
	mux.HandleFunc("/debug/pprof/profile", debug(unlessHead(pprof.Profile)))
	mux.HandleFunc("/debug/pprof/symbol", debug(pprof.Symbol))
	mux.HandleFunc("/debug/pprof/trace", debug(unlessHead(pprof.Trace)))
	mux.HandleFunc("GET /debug/log", debug(serveText(d.options.RecentLog)))
	mux.HandleFunc("GET /debug/settings", debug(serveText(d.options.Settings)))
	documents, others := served(api.serve), httpapi.Routes(mux)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// A mux cleans paths ("a//b" becomes "a/b"), which would change an id.
		if strings.HasPrefix(r.URL.EscapedPath(), documentsPath) {
			documents(w, r)
			return
		}
		others.ServeHTTP(w, r)
	})
}

// unlessHead answers HEAD without the work of the handler, which takes a profile for seconds.
func unlessHead(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodHead {
			w.Header().Set("Content-Type", "application/octet-stream")
			return
		}
		next(w, r)
	}
}

// answerError returns the response for an error of a document or a list.
func answerError(err error) *httpapi.Error {
	var full *budget.NoMemoryError
	switch {
	case errors.Is(err, docservice.ErrNotFound):
		return httpapi.Errorf(httpapi.CodeNotFound, "not found")
	case errors.Is(err, docservice.ErrNoCollection):
		return httpapi.Errorf(httpapi.CodeNoCollection, "%v", err)
	case errors.Is(err, collection.ErrNotPermitted):
		return httpapi.Errorf(httpapi.CodeForbidden, "%v", err)
	case errors.As(err, &full), boxcarrpc.CodeOf(err) == boxcarrpc.CodeResourceExhausted,
		boxcarrpc.CodeOf(err) == boxcarrpc.CodeDeadlineExceeded, errors.Is(err, context.DeadlineExceeded):
		return httpapi.Errorf(httpapi.CodeUnavailable, noMemory)
	case errors.Is(err, docservice.ErrUnavailable), errors.Is(err, collection.ErrClosed):
		return httpapi.Errorf(httpapi.CodeUnavailable, "%v", err)
	case errors.Is(err, docservice.ErrMoved):
		return httpapi.Errorf(httpapi.CodeMoved, "%v", err)
	case errors.Is(err, docservice.ErrBadID), errors.Is(err, docservice.ErrMalformed):
		return httpapi.Errorf(httpapi.CodeInvalidArgument, "%v", err)
	}
	return httpapi.Errorf(httpapi.CodeInternal, "%v", err)
}

// serveText answers with a text; nil: with none.
func serveText(text func() string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		if text != nil {
			_, _ = io.WriteString(w, text()) // the client may have disconnected
		}
	}
}
