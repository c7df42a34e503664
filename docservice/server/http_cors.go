package server

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// anyOrigin in --http-cors permits web pages of each origin.
const anyOrigin = "*"

// preflightSeconds is how long a browser keeps the answer to a preflight request. It is short,
// because a browser keeps it after the origin has been removed.
const preflightSeconds = "600"

// Header fields that pages may send, beyond those of each request, and read. Only a page of a
// named origin sends a token: "*" is for documents that each page may read.
const (
	corsRequestHeaders  = "If-Match, If-None-Match, If-Range, Priority, Range"
	corsResponseHeaders = "Content-Range, ETag"
)

// checkOrigins reports origins that no browser sends.
func (h *HTTP) checkOrigins() error {
	for _, origin := range h.Origins {
		switch {
		case origin == anyOrigin && len(h.Origins) > 1:
			return fmt.Errorf("--http-cors * permits all origins; remove the others")
		case origin != anyOrigin && !isOrigin(origin):
			return fmt.Errorf("--http-cors %q: write an origin as a browser sends it, such as https://www.example.org or http://localhost:8080, in lower case, without a path or the port of the scheme; or * for all", origin)
		}
	}
	return nil
}

// isOrigin reports whether a text is an origin as browsers send it.
func isOrigin(text string) bool {
	ports := map[string]string{"http": "80", "https": "443"} // browsers leave them out
	u, err := url.Parse(text)
	return err == nil && u.Hostname() != "" && ports[u.Scheme] != "" && ports[u.Scheme] != u.Port() &&
		text == strings.ToLower(u.Scheme+"://"+u.Host) && !strings.Contains(text, anyOrigin)
}

// isCORS reports whether a request is one for documents or lists that web pages of other
// origins may make, whatever its origin.
func (h *HTTP) isCORS(r *http.Request) bool {
	if len(h.Origins) == 0 || !strings.HasPrefix(r.URL.EscapedPath(), documentsPath) && !strings.HasPrefix(r.URL.Path, collectionsPath) {
		return false
	}
	return r.Method == http.MethodGet || r.Method == http.MethodHead || r.Method == http.MethodOptions
}

// allowsOrigin reports whether web pages of an origin may read documents.
func (h *HTTP) allowsOrigin(origin string) bool {
	return origin != "" && (slices.Contains(h.Origins, origin) || slices.Contains(h.Origins, anyOrigin))
}

// shared wraps a handler; it lets web pages of the origins in --http-cors read its responses
// with documents and lists, and answers their preflight requests, which have no credentials.
func (h *HTTP) shared(next http.Handler) http.Handler {
	if len(h.Origins) == 0 {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !h.isCORS(r) {
			next.ServeHTTP(w, r)
			return
		}
		header, origin := w.Header(), r.Header.Get("Origin")
		header["Vary"] = []string{"Origin"}
		if !h.allowsOrigin(origin) {
			next.ServeHTTP(w, r)
			return
		}
		requested := corsRequestHeaders
		if h.Origins[0] == anyOrigin {
			origin = anyOrigin
		} else {
			requested = "Authorization, " + requested
		}
		header.Set("Access-Control-Allow-Origin", origin)
		if r.Method == http.MethodOptions && r.Header.Get("Access-Control-Request-Method") != "" {
			header.Set("Access-Control-Allow-Methods", "GET, HEAD")
			header.Set("Access-Control-Allow-Headers", requested)
			header.Set("Access-Control-Max-Age", preflightSeconds)
			w.WriteHeader(http.StatusNoContent)
			return
		}
		header.Set("Access-Control-Expose-Headers", corsResponseHeaders)
		next.ServeHTTP(w, r)
	})
}

// varyByCoding adds Accept-Encoding to the header fields on which a response depends.
func varyByCoding(header http.Header) {
	if len(header["Vary"]) == 0 {
		header["Vary"] = variesByCoding
		return
	}
	header["Vary"] = append(header["Vary"], variesByCoding...)
}
