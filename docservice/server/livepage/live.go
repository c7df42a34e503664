package livepage

import (
	"bytes"
	"fmt"
	"html/template"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"docstore/boxcarrpc/budget"
)

// Live sends the sections of a page that have changed, once per second, as server-sent
// events. assets/page.js replaces the elements with their names. The zero value has no
// viewers. It is safe for concurrent use.
type Live struct {
	mu      sync.Mutex
	viewers map[budget.Client][]*viewer // by client, in the order of their arrival
	count   int                         // of all clients
}

// A viewer is a place of a client.
type viewer struct {
	client    budget.Client
	displaced chan struct{} // closed when another viewer has the place
}

// Serve sends the sections until the viewer disconnects or is displaced or render fails, and
// returns the error of render. Sections are templates; render returns their input. HEAD takes
// no place.
func (l *Live) Serve(w http.ResponseWriter, r *http.Request, templates *template.Template, sections []string, render func() any) error {
	if r.Method == http.MethodHead {
		Headers(w, "text/event-stream")
		return nil
	}
	viewer := l.addViewer(clientAt(r.RemoteAddr))
	if viewer == nil {
		http.Error(w, fmt.Sprintf("too many live viewers: %d viewers is the limit; reload for updates", MaxViewers), http.StatusServiceUnavailable)
		return nil
	}
	defer l.removeViewer(viewer)
	Headers(w, "text/event-stream")
	control := http.NewResponseController(w)
	ticker := time.NewTicker(statusLife)
	defer ticker.Stop()
	sent := map[string]string{}
	for {
		events, err := events(templates, sections, render(), sent)
		if err != nil {
			return err
		}
		if err := control.SetWriteDeadline(time.Now().Add(liveWriteTimeout)); err != nil {
			return nil // the viewer has disconnected
		}
		if _, err := w.Write(events); err != nil {
			return nil // the viewer has disconnected
		}
		if err := control.Flush(); err != nil {
			return nil // the viewer has disconnected
		}
		select {
		case <-r.Context().Done():
			return nil
		case <-viewer.displaced:
			return nil
		case <-ticker.C:
		}
	}
}

// clientAt returns the client at an address: a host, or a network of IPv6.
func clientAt(hostPort string) budget.Client {
	address, _ := netip.ParseAddrPort(hostPort) // clients without an address are one
	return budget.ClientAt(net.TCPAddrFromAddrPort(address))
}

// addViewer gives a client a place for another viewer. It returns nil if there is none.
func (l *Live) addViewer(client budget.Client) *viewer {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.count >= MaxViewers {
		most := client
		for other, viewers := range l.viewers {
			if len(viewers) > len(l.viewers[most]) {
				most = other
			}
		}
		if len(l.viewers[most]) <= len(l.viewers[client])+1 {
			return nil
		}
		l.removeLocked(l.viewers[most][0])
	}
	if l.viewers == nil {
		l.viewers = make(map[budget.Client][]*viewer)
	}
	v := &viewer{client: client, displaced: make(chan struct{})}
	l.viewers[client] = append(l.viewers[client], v)
	l.count++
	return v
}

func (l *Live) removeViewer(v *viewer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.removeLocked(v)
}

// removeLocked removes a viewer, unless it was displaced.
func (l *Live) removeLocked(v *viewer) {
	viewers := l.viewers[v.client]
	i := slices.Index(viewers, v)
	if i < 0 {
		return
	}
	close(v.displaced)
	l.count--
	if viewers = slices.Delete(viewers, i, i+1); len(viewers) > 0 {
		l.viewers[v.client] = viewers
	} else {
		delete(l.viewers, v.client)
	}
}

// events renders all sections and returns those that differ from sent as server-sent events
// with their names.
func events(templates *template.Template, sections []string, v any, sent map[string]string) ([]byte, error) {
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
