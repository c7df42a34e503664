package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/user"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

const (
	auditFlag = "audit-log"
	// auditVariable is the environment variable for the file if the flag is not set. It is the
	// same for all commands, so that a host has one audit log.
	auditVariable = "DOCSTORE_AUDIT_LOG"
	// auditMode lets the group read the file, for programs that collect logs.
	auditMode = 0o640
)

// AuditLog receives one record, a line of JSON with "audit":true, for each administrative
// action: in the file of --audit-log, else of DOCSTORE_AUDIT_LOG, else in the log on standard
// error, at any --log-level, unless that is a terminal. The file is opened for each record, so that it can be renamed at
// any time.
type AuditLog struct{ path string }

// AddFlag adds the flag --audit-log.
func (a *AuditLog) AddFlag(flags *pflag.FlagSet) {
	flags.StringVar(&a.path, auditFlag, "", "file to which a record of each administrative action is appended; default: that of "+auditVariable+", or else the log")
}

// Check returns an error if no record can be written.
func (a *AuditLog) Check(env *Env) error {
	_, done, err := a.open(env)
	return errors.Join(err, done())
}

// open returns the handler for a record, and a function that completes it.
func (a *AuditLog) open(env *Env) (handler slog.Handler, done func() error, err error) {
	done = func() error { return nil }
	path := cmp.Or(a.path, os.Getenv(auditVariable))
	switch {
	case path == "" && env.Terminal:
		return slog.DiscardHandler, done, nil
	case path == "":
		return env.NewLogger(slog.LevelInfo).Handler(), done, nil
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, auditMode)
	if err != nil {
		return nil, done, fmt.Errorf("audit log: %w", err)
	}
	return slog.NewJSONHandler(file, nil), func() error { return errors.Join(file.Sync(), file.Close()) }, nil
}

// Record writes the record of an action: its name, the user or client, and the error of the
// action, nil if it was done.
func (a *AuditLog) Record(env *Env, action, by string, failure error, attributes ...slog.Attr) error {
	handler, done, err := a.open(env)
	if err != nil {
		return err
	}
	record := slog.NewRecord(env.Now(), slog.LevelInfo, action, 0)
	result := slog.String("result", "done")
	if failure != nil {
		result.Value = slog.StringValue("failed")
		attributes = append(attributes, slog.String("error", failure.Error()))
	}
	record.AddAttrs(slog.Bool("audit", true), slog.String("by", by), result)
	record.AddAttrs(attributes...)
	if err := errors.Join(handler.Handle(context.Background(), record), done()); err != nil {
		return fmt.Errorf("audit log: %s is not recorded: %w", action, err)
	}
	return nil
}

// Audit makes a command record its runs in the audit log: the path of the command, the user of
// the process, the arguments and the flags that were set. Runs with --dry-run are not recorded,
// nor those without the flag needed, if it is not empty. The command fails before it does
// anything if the audit log cannot be written.
func Audit(env *Env, command *cobra.Command, needed string) *cobra.Command {
	log := AuditLog{}
	log.AddFlag(command.Flags())
	run := command.RunE
	command.RunE = func(c *cobra.Command, args []string) error {
		dry := c.Flags().Lookup("dry-run")
		if needed != "" && !c.Flags().Changed(needed) || dry != nil && dry.Value.String() == "true" {
			return run(c, args)
		}
		if err := log.Check(env); err != nil {
			return err
		}
		failure := run(c, args)
		if IsUsage(failure) {
			return failure // nothing was attempted
		}
		var flags []any
		c.Flags().Visit(func(f *pflag.Flag) {
			if f.Name != auditFlag && f.Name != LogLevelFlag {
				flags = append(flags, slog.String(f.Name, f.Value.String()))
			}
		})
		return errors.Join(failure, log.Record(env, c.CommandPath(), User(), failure, slog.Any("args", args), slog.Group("flags", flags...)))
	}
	return command
}

// User returns the user of this process and the host, as USER@HOST. Behind sudo it is the user
// that ran sudo.
func User() string {
	name := "unknown"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	if by := os.Getenv("SUDO_USER"); by != "" && os.Geteuid() == 0 {
		name = by + " as " + name
	}
	if host, err := os.Hostname(); err == nil {
		name += "@" + host
	}
	return name
}
