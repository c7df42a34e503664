// Package cli contains the code that the commands share: exit statuses and one-line
// errors, logging for people and for machines, and signals. It links few
// libraries: progress bars, files of settings and man pages have their own packages.
//
// A command is a function that builds its cobra commands around an Env, so that tests can
// run it any number of times with their own input and output:
//
//	func main() { cli.Main(newRoot) }
//
//	func newRoot(env *cli.Env) *cobra.Command
//
// Exit statuses: 0 is success, 1 is failure, 2 is an invalid command line. An error is one
// line on standard error: what failed, where, what to do.
package cli

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"docstore/internal/buildinfo"
)

// Exit statuses.
const (
	ExitOK      = 0
	ExitFailure = 1
	ExitUsage   = 2
)

// helpColumns is the width of help texts.
const helpColumns = 79

// LogLevelFlag is a flag of every command.
const LogLevelFlag = "log-level"

// Env is the environment of a running command.
type Env struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	// Terminal says that standard error is a terminal.
	Terminal bool
	// Log can be used once flags are parsed. It logs at Level, which may change.
	Log   *slog.Logger
	Level slog.LevelVar
	// Recent keeps the recent log; nil: not kept.
	Recent *RecentLog
	// Now is the clock of rates and progress.
	Now func() time.Time
}

// Main runs the command of this process and exits with its status. SIGINT and SIGTERM
// cancel the context; a second signal kills the process. A closed standard output ends the
// process, a closed standard error does not.
func Main(newRoot func(*Env) *cobra.Command) {
	// Without a handler a write to a closed pipe as standard error kills the process. An
	// ignored signal would stay ignored in child processes.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	env := &Env{
		Stdin:    os.Stdin,
		Stdout:   dataOutput{os.Stdout},
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
	root.Version = buildinfo.Version()
	root.SetVersionTemplate("{{.Name}} {{.Version}}\n")
	root.SetUsageTemplate(usageTemplate(root))
	root.AddCommand(newVersion(env))

	// Errors before a command's own code runs are usage errors.
	running := false
	addLogging(env, root, func() { running = true })
	reportAllErrors(root, args)
	command, err := root.ExecuteContextC(ctx)
	if err == nil {
		return ExitOK
	}
	if !running {
		err = Usagef("%w", err)
	}
	return report(env.Stderr, command, err)
}

// addLogging adds --log-level to the command tree, and creates the logger when a command is
// about to run.
func addLogging(env *Env, root *cobra.Command, started func()) {
	root.PersistentFlags().TextVar(&env.Level, LogLevelFlag, &env.Level, "minimum level of log messages: DEBUG, INFO, WARN or ERROR")
	Values(root, LogLevelFlag, "DEBUG", "INFO", "WARN", "ERROR")
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

// newVersion returns the command that prints what --version prints.
func newVersion(env *Env) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Long:  "Version prints the version of the program, as --version.",
		Args:  cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			_, err := fmt.Fprintf(env.Stdout, "%s %s\n", command.Root().Name(), command.Root().Version)
			return err
		},
	}
}

// Values makes shells complete the values of a flag.
func Values(command *cobra.Command, flag string, values ...string) {
	if err := command.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err) // the command has no such flag
	}
}

// NeedsCommand is the RunE of a command that only contains other commands.
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
	return Usagef("%w", Unknown("command", given[0], names))
}
