package cli

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
)

// usageError is a command line that cannot be understood.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// Usagef is an error in how a command was called: the exit status is 2, and the
// message points at --help.
func Usagef(format string, args ...any) error {
	return usageError{fmt.Errorf(format, args...)}
}

// IsUsage tells whether an error is one in how a command was called.
func IsUsage(err error) bool {
	var usage usageError
	return errors.As(err, &usage)
}

// bareError is printed without the command's name before it.
type bareError struct{ error }

func (e bareError) Unwrap() error { return e.error }

// Bare makes an error that is printed as it is, without the command's name in
// front: a line that begins with the place it is about, as compilers print it.
func Bare(err error) error { return bareError{err} }

// report prints the one line of an error and returns the exit status. Where
// standard error cannot be written the status is all that is left to tell.
func report(w io.Writer, command *cobra.Command, err error) int {
	message := strings.Join(strings.FieldsFunc(err.Error(), func(r rune) bool { return r == '\n' }), "; ")
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
