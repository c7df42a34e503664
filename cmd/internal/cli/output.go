package cli

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

// dataOutput is standard output. If it is a closed pipe, as of "| head", a write kills the
// process by SIGPIPE.
type dataOutput struct{ file *os.File }

func (o dataOutput) Write(p []byte) (int, error) {
	n, err := o.file.Write(p)
	if errors.Is(err, syscall.EPIPE) {
		signal.Reset(syscall.SIGPIPE) // Main handles it
		return o.file.Write(p)        // kills the process
	}
	return n, err
}

// Output is buffered standard output that keeps the first error, so that a full
// disk is noticed once, at Flush.
type Output struct {
	buffer *bufio.Writer
	err    error
}

// NewOutput returns an Output that writes to w.
func NewOutput(w io.Writer) *Output {
	return &Output{buffer: bufio.NewWriterSize(w, 64<<10)}
}

// PrintJSON writes a value as a line of JSON; after an error it does nothing.
func (o *Output) PrintJSON(value any) {
	line, err := json.Marshal(value)
	if o.err == nil {
		o.err = err
	}
	o.Write(append(line, '\n'))
}

// Write writes bytes; after an error it does nothing.
func (o *Output) Write(p []byte) {
	if o.err == nil {
		_, o.err = o.buffer.Write(p)
	}
}

// Printf writes formatted text; after an error it does nothing.
func (o *Output) Printf(format string, args ...any) {
	if o.err == nil {
		_, o.err = fmt.Fprintf(o.buffer, format, args...)
	}
}

// Err returns the first write error known so far; Flush may find another.
func (o *Output) Err() error { return o.wrapped() }

// Flush writes the buffer and returns the first error.
func (o *Output) Flush() error {
	if o.err == nil {
		o.err = o.buffer.Flush()
	}
	return o.wrapped()
}

// PrintJSON writes a value to standard output, as indented JSON.
func (e *Env) PrintJSON(value any) error {
	text, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return err
	}
	out := NewOutput(e.Stdout)
	out.Write(append(text, '\n'))
	return out.Flush()
}

func (o *Output) wrapped() error {
	if o.err == nil {
		return nil
	}
	return fmt.Errorf("writing to standard output: %w", o.err)
}
