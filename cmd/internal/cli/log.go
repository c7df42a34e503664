package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"sync"
)

// NewLogger returns a logger to standard error: short lines on a terminal, JSON otherwise.
func (e *Env) NewLogger(level slog.Leveler) *slog.Logger {
	options := &slog.HandlerOptions{Level: level}
	out := e.Stderr
	if e.Recent != nil {
		out = io.MultiWriter(e.Recent, e.Stderr) // it stops at an error, which Recent never returns
	}
	if e.Terminal {
		return slog.New(newTerminalHandler(out, options))
	}
	return slog.New(slog.NewJSONHandler(out, options))
}

// Quiet returns a copy of the environment whose logger drops messages below WARN.
func (e *Env) Quiet() *Env {
	return &Env{
		Stdin: e.Stdin, Stdout: e.Stdout, Stderr: e.Stderr, Terminal: e.Terminal, Now: e.Now, Recent: e.Recent,
		Log: e.NewLogger(slog.LevelWarn),
	}
}

// clearLine clears the terminal's line, so that a message does not mix with a progress bar;
// the bar is drawn again below.
const clearLine = "\r\x1b[K"

// terminalHandler prints "15:04:05 WARN message key=value".
type terminalHandler struct {
	// attributes formats the attributes; it writes to buffer.
	attributes slog.Handler
	shared     *terminalShared
}

type terminalShared struct {
	mu struct {
		sync.Mutex
		w      io.Writer
		buffer bytes.Buffer
	}
}

func newTerminalHandler(w io.Writer, options *slog.HandlerOptions) *terminalHandler {
	shared := &terminalShared{}
	shared.mu.w = w
	attributes := slog.NewTextHandler(&shared.mu.buffer, &slog.HandlerOptions{
		Level: options.Level,
		ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
			if len(groups) == 0 && (a.Key == slog.TimeKey || a.Key == slog.LevelKey || a.Key == slog.MessageKey) {
				return slog.Attr{} // Handle prints them
			}
			return a
		},
	})
	return &terminalHandler{attributes: attributes, shared: shared}
}

func (h *terminalHandler) Enabled(ctx context.Context, level slog.Level) bool {
	return h.attributes.Enabled(ctx, level)
}

func (h *terminalHandler) Handle(ctx context.Context, record slog.Record) error {
	mu := &h.shared.mu
	mu.Lock()
	defer mu.Unlock()
	mu.buffer.Reset()
	if err := h.attributes.Handle(ctx, record); err != nil {
		return err
	}
	severity := ""
	if record.Level != slog.LevelInfo {
		severity = record.Level.String() + " "
	}
	attributes := bytes.TrimRight(mu.buffer.Bytes(), "\n")
	space := ""
	if len(attributes) > 0 {
		space = " "
	}
	_, err := fmt.Fprintf(mu.w, "%s%s %s%s%s%s\n", clearLine, record.Time.Format("15:04:05"), severity, record.Message, space, attributes)
	return err
}

func (h *terminalHandler) WithAttrs(attributes []slog.Attr) slog.Handler {
	return &terminalHandler{attributes: h.attributes.WithAttrs(attributes), shared: h.shared}
}

func (h *terminalHandler) WithGroup(name string) slog.Handler {
	return &terminalHandler{attributes: h.attributes.WithGroup(name), shared: h.shared}
}
