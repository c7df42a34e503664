package livepage

import (
	"bytes"
	"fmt"
	"html/template"
	"net/http"
	"strings"
	"sync"
	"time"
)

// Live sends the sections of a page that have changed, once per second, as server-sent
// events. assets/page.js replaces the elements with their names. The zero value has no
// viewers. It is safe for concurrent use.
type Live struct {
	mu      sync.Mutex
	viewers int
}

// Serve sends the sections until the viewer disconnects or render fails, and returns the
// error of render. Sections are templates; render returns their input.
func (l *Live) Serve(w http.ResponseWriter, r *http.Request, templates *template.Template, sections []string, render func() any) error {
	if !l.addViewer() {
		http.Error(w, fmt.Sprintf("too many live viewers: %d viewers is the limit; reload for updates", MaxViewers), http.StatusServiceUnavailable)
		return nil
	}
	defer l.removeViewer()
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
		case <-ticker.C:
		}
	}
}

func (l *Live) addViewer() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.viewers >= MaxViewers {
		return false
	}
	l.viewers++
	return true
}

func (l *Live) removeViewer() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.viewers--
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
