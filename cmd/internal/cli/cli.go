// Package cli is what the commands share: exit statuses and errors of one line,
// logging for people and for machines, ending on a signal, progress of long
// jobs, and flags that take sizes.
//
// A command is a function that builds its cobra commands around an Env, so that
// tests run it as often as they like with their own input and output:
//
//	func main() { cli.Main(newRoot) }
//
//	func newRoot(env *cli.Env) *cobra.Command
//
// Exit statuses: 0 is success, 1 is failure, 2 is a command line that cannot be
// understood. An error is one line on standard error: what, where, what to do.
package cli

import (
	"context"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// Exit statuses.
const (
	ExitOK      = 0
	ExitFailure = 1
	ExitUsage   = 2
)

// LogLevelFlag is a flag of every command.
const LogLevelFlag = "log-level"

// Env is what surrounds a command while it runs.
type Env struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	// Terminal tells that a person reads standard error.
	Terminal bool
	// Log is ready once flags are parsed, and logs what Level lets through, which
	// may change.
	Log   *slog.Logger
	Level slog.LevelVar
	// Recent keeps what was logged last; nil: nothing does.
	Recent *RecentLog
	// Now is the clock of rates and progress.
	Now func() time.Time
}

// Main runs the command of this process and exits with its status. SIGINT and
// SIGTERM end the context; a second one ends the process at once.
func Main(newRoot func(*Env) *cobra.Command) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	env := &Env{
		Stdin:    os.Stdin,
		Stdout:   os.Stdout,
		Stderr:   os.Stderr,
		Terminal: term.IsTerminal(int(os.Stderr.Fd())),
		Now:      time.Now,
		Recent:   &RecentLog{},
	}
	os.Exit(Run(ctx, newRoot, env, os.Args[1:]))
}

// Run runs a command with the given arguments and returns its exit status.
func Run(ctx context.Context, newRoot func(*Env) *cobra.Command, env *Env, args []string) int {
	root := newRoot(env)
	root.SetArgs(args)
	root.SetIn(env.Stdin)
	root.SetOut(env.Stdout)
	root.SetErr(env.Stderr)
	root.SilenceErrors, root.SilenceUsage = true, true
	root.Version = Version()
	root.SetVersionTemplate("{{.Name}} {{.Version}}\n")
	root.CompletionOptions.HiddenDefaultCmd = true
	root.AddCommand(newMan(root))

	// What goes wrong before a command's own code runs is a matter of usage.
	running := false
	addLogging(env, root, func() { running = true })
	tellAll(root, args)
	command, err := root.ExecuteContextC(ctx)
	if err == nil {
		return ExitOK
	}
	if !running {
		err = Usagef("%w", err)
	}
	return report(env.Stderr, command, err)
}

// addLogging gives the command tree its --log-level, and makes the logger when
// a command is about to run.
func addLogging(env *Env, root *cobra.Command, started func()) {
	root.PersistentFlags().TextVar(&env.Level, LogLevelFlag, &env.Level, "least important messages to log: DEBUG, INFO, WARN or ERROR")
	env.Log = env.NewLogger(&env.Level)
	wrap(root, started)
}

func wrap(command *cobra.Command, started func()) {
	if run := command.RunE; run != nil {
		command.RunE = func(c *cobra.Command, args []string) error {
			started()
			return run(c, args)
		}
	}
	for _, child := range command.Commands() {
		wrap(child, started)
	}
}

// NeedsCommand is the RunE of a command that only holds other commands.
func NeedsCommand(command *cobra.Command, given []string) error {
	if len(given) == 0 {
		return Usagef("a command is missing")
	}
	var names []string
	for _, child := range command.Commands() {
		if !child.Hidden {
			names = append(names, child.Name())
		}
	}
	return Usagef("%w", unknown("command", given[0], names))
}
