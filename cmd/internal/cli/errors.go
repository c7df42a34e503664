package cli

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// usageError is an error of the command line.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// Usagef returns an error of the command line: the exit status is 2, and the message refers
// to --help.
func Usagef(format string, args ...any) error {
	return usageError{fmt.Errorf(format, args...)}
}

// IsUsage reports whether an error is one of the command line.
func IsUsage(err error) bool {
	var usage usageError
	return errors.As(err, &usage)
}

// bareError is printed without the command's name before it.
type bareError struct{ error }

func (e bareError) Unwrap() error { return e.error }

// Bare returns an error that is printed without the command's name: a line that begins with
// a place in a file, as compilers print it.
func Bare(err error) error { return bareError{err} }

// packages are those whose names begin the messages of their errors.
var packages = []string{"boxcarrpc", "docservice"}

// tidy removes the names of packages from a message, and what an error repeats behind one:
// "docservice: unavailable: boxcarrpc: unavailable: x" becomes "unavailable: x".
func tidy(message string) string {
	var parts []string
	named := false
	for part := range strings.SplitSeq(message, ": ") {
		if slices.Contains(packages, part) {
			named = true
			continue
		}
		if !named || len(parts) == 0 || parts[len(parts)-1] != part {
			parts = append(parts, part)
		}
		named = false
	}
	return strings.Join(parts, ": ")
}

// report prints the line of an error and returns the exit status. If standard error cannot
// be written, only the status remains.
func report(w io.Writer, command *cobra.Command, err error) int {
	message := tidy(strings.Join(strings.FieldsFunc(err.Error(), func(r rune) bool { return r == '\n' }), "; "))
	var bare bareError
	switch {
	case IsUsage(err):
		_, _ = fmt.Fprintf(w, "%s: %s; see %s --help\n", command.Root().Name(), message, command.CommandPath())
		return ExitUsage
	case errors.As(err, &bare):
		_, _ = fmt.Fprintln(w, message)
	default:
		_, _ = fmt.Fprintf(w, "%s: %s\n", command.Root().Name(), message)
	}
	return ExitFailure
}
