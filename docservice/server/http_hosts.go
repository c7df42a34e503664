package server

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"

	"docstore/docservice/server/internal/httpapi"
)

// A listener on loopback trusts this host, and with it the web browsers on it, which send
// requests for any web page. A browser hides the answers from the page, unless the name in
// the page's URL resolves to this listener (DNS rebinding). The name is then in Host. It has a
// dot: no page of the Internet has a name without one, which is that of a host of this network
// or an alias of this one.

// ownHosts are the hosts under which a listener serves HTTP, besides localhost and addresses.
type ownHosts struct {
	names []string // in lower case
	local bool     // the listener is on loopback: other addresses are those of other hosts
}

// ownHosts returns the hosts of the listener.
func (h *HTTP) ownHosts() ownHosts {
	own, _, _ := net.SplitHostPort(h.Address) // checked before
	return ownHosts{append(slices.Clone(h.Hosts), strings.ToLower(own)), h.local()}
}

// onlyOwnHosts wraps a handler; requests for other hosts, and of web pages of other hosts,
// are answered 403, except those that --http-cors permits. It applies on loopback, and elsewhere if --http-hosts lists the names.
func (h *HTTP) onlyOwnHosts(next http.Handler) http.Handler {
	own := h.ownHosts()
	if !own.local && len(h.Hosts) == 0 {
		return next
	}
	var served atomic.Pointer[string] // the latest Host: that of most requests
	serves := func(host string) bool {
		if latest := served.Load(); latest != nil && *latest == host {
			return true
		}
		if !own.serves(host) {
			return false
		}
		latest := host
		served.Store(&latest)
		return true
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		origin := r.Header.Get("Origin")
		switch {
		case r.Host != "" && !serves(r.Host): // a client that sends no Host, as with HTTP/1.0, is no browser
			httpapi.Errorf(httpapi.CodeForbidden, "host %q is not served; use a loopback address, or list the name in --http-hosts of the server", r.Host).Write(w)
		case origin != "" && !own.includeOrigin(origin, r.Host) && (!h.isCORS(r) || !h.allowsOrigin(origin)):
			httpapi.Errorf(httpapi.CodeForbidden, "web pages of %q are not served; list the host in --http-hosts of the server", origin).Write(w)
		case origin == "" && isCrossSite(r.Header):
			httpapi.Errorf(httpapi.CodeForbidden, "web pages of other hosts are not served; list the host in --http-hosts of the server").Write(w)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// serves reports whether requests with a value of Host are answered.
func (o ownHosts) serves(hostPort string) bool {
	host := hostOf(hostPort)
	return o.include(hostPort) || o.local && host != "" && !strings.ContainsAny(host, ".:@")
}

// hostOf returns the host, in lower case, of one with or without a port.
func hostOf(hostPort string) string {
	return strings.ToLower(strings.TrimSuffix((&url.URL{Host: hostPort}).Hostname(), "."))
}

// include reports whether a host, with or without a port, is one of these.
func (o ownHosts) include(hostPort string) bool {
	host := hostOf(hostPort)
	if host == "localhost" || host != "" && slices.Contains(o.names, host) {
		return true
	}
	address, err := netip.ParseAddr(host)
	return err == nil && (address.Unmap().IsLoopback() || !o.local) // an address cannot be rebound
}

// includeOrigin reports whether the origin of a web page is one of these hosts, or the host
// that it requests.
func (o ownHosts) includeOrigin(origin, requested string) bool {
	page, err := url.Parse(origin)
	return err == nil && (o.include(page.Host) || page.Host != "" && page.Host == requested)
}

// isCrossSite reports whether a page of another site makes a request, such as for an image, a
// script or a frame. A link to this listener is allowed.
func isCrossSite(header http.Header) bool {
	return header.Get("Sec-Fetch-Site") == "cross-site" && header.Get("Sec-Fetch-Dest") != "document"
}

// checkHosts puts --http-hosts into lower case, and reports malformed names.
func (h *HTTP) checkHosts() error {
	for i, host := range h.Hosts {
		_, err := netip.ParseAddr(host)
		if host == "" || err != nil && strings.ContainsAny(host, ":/ *[]") {
			return fmt.Errorf("--http-hosts %q: must be host names, without a scheme, port or path", host)
		}
		h.Hosts[i] = strings.ToLower(strings.TrimSuffix(host, "."))
	}
	return nil
}
