package simulate

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"
)

// eventLog is the readable history of a run: what the simulator did, and what the processes
// logged, with the virtual time since the start.
type eventLog struct {
	start time.Time

	mu struct {
		sync.Mutex
		lines []string
	}
}

// maxLines bounds the lines that are kept: the newest.
const maxLines = 4000

func newEventLog() *eventLog { return &eventLog{start: time.Now()} }

// add adds a line about a part of the world.
func (l *eventLog) add(who, format string, args ...any) {
	line := fmt.Sprintf("%12s %-10s %s", time.Since(l.start).Round(time.Microsecond), who, fmt.Sprintf(format, args...))
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.mu.lines) == maxLines {
		l.mu.lines = append(l.mu.lines[:0], l.mu.lines[maxLines/2:]...)
	}
	l.mu.lines = append(l.mu.lines, line)
}

// text returns the kept lines.
func (l *eventLog) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.mu.lines, "\n")
}

// logger returns a logger of a process.
func (l *eventLog) logger(who string) *slog.Logger { return slog.New(&logHandler{log: l, who: who}) }

// logHandler writes the messages of a process to the eventLog.
type logHandler struct {
	log   *eventLog
	who   string
	attrs string
}

func (h *logHandler) Enabled(_ context.Context, level slog.Level) bool {
	return level >= slog.LevelInfo
}

func (h *logHandler) Handle(_ context.Context, r slog.Record) error {
	var text strings.Builder
	fmt.Fprintf(&text, "%s: %s%s", r.Level, r.Message, h.attrs)
	r.Attrs(func(a slog.Attr) bool {
		fmt.Fprintf(&text, " %s=%v", a.Key, a.Value)
		return true
	})
	h.log.add(h.who, "%s", text.String())
	return nil
}

func (h *logHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	with := *h
	for _, a := range attrs {
		with.attrs += fmt.Sprintf(" %s=%v", a.Key, a.Value)
	}
	return &with
}

func (h *logHandler) WithGroup(string) slog.Handler { return h }
