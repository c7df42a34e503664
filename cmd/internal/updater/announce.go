package updater

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"

	"github.com/spf13/cobra"

	"docstore/cmd/internal/cli"
	"docstore/cmd/internal/meter"
	"docstore/queue/bucket"
	"docstore/queue/publish"
)

// collectionChange is a command that changes the record of a collection.
type collectionChange struct {
	env    *cli.Env
	flags  bucketFlags
	number uint64
	group  string
	reason string
}

// addTo adds the flag --to; required: there is no default.
func (c *collectionChange) addTo(command *cobra.Command, usage string, required bool) {
	if required {
		addRequiredTo(command, &c.number, usage)
		return
	}
	command.Flags().Uint64Var(&c.number, "to", 0, usage)
}

func (c *collectionChange) addGroup(command *cobra.Command) {
	command.Flags().StringVar(&c.group, "group", "", "group of servers, as in docserviced --group; empty is all servers")
}

func (c *collectionChange) addReason(command *cobra.Command) {
	command.Flags().StringVar(&c.reason, "reason", "", "why, for people")
}

// pin returns the pin that the flags describe.
func (c *collectionChange) pin(ref publish.Ref) publish.Pin {
	return publish.Pin{Group: c.group, To: ref, By: cli.User(), Reason: c.reason, Time: c.env.Now().UTC()}
}

// update applies a change to the record and prints the outcome. find makes it read the
// manifest that --to names; 0 is the newest.
func (c *collectionChange) update(ctx context.Context, find bool, change func(publish.Record, publish.Ref) (publish.Record, error)) error {
	b, log, err := c.flags.openLog(ctx, c.env)
	if err != nil {
		return err
	}
	defer b.Close()
	var ref publish.Ref
	if find {
		if _, ref, err = publish.FindManifest(ctx, b, c.number, c.env.Now); err != nil {
			return fmt.Errorf("%s: %w", c.flags.url, err)
		}
	}
	record, err := log.Update(ctx, func(r publish.Record) (publish.Record, error) { return change(r, ref) })
	if err != nil {
		return fmt.Errorf("%s: %w", c.flags.url, err)
	}
	out := cli.NewOutput(c.env.Stdout)
	printState(out, record)
	return out.Flush()
}

// printState prints what servers are told to serve.
func printState(out *cli.Output, r publish.Record) {
	out.Printf("announced: %s; newest: %d\n", numberOrNone(r.Announced.Number), r.Head.Number)
	for _, p := range r.Pins {
		out.Printf("pinned to %d for %s by %s at %s%s\n", p.To.Number, cmp.Or(p.Group, "all servers"), p.By,
			p.Time.Format("2006-01-02T15:04:05Z"), parenthesized(p.Reason))
	}
	for _, c := range r.Canaries {
		out.Printf("canary of %d for %s by %s at %s\n", c.To.Number, c.Group, c.By, c.Time.Format("2006-01-02T15:04:05Z"))
	}
	switch {
	case r.Frozen && r.Clean > 0:
		out.Printf("announcing ends the rollback from manifest %d on\n", r.Clean)
	case r.Frozen:
		out.Printf("announcing is frozen by the rollback: run revert, or unpin --accept-bad\n")
	}
	for _, ref := range r.Retained {
		out.Printf("retained: %d\n", ref.Number)
	}
	for _, b := range r.Bad {
		out.Printf("bad: %d to %d\n", b.From, b.To)
	}
}

func numberOrNone(number uint64) string {
	if number == 0 {
		return "none"
	}
	return fmt.Sprint(number)
}

func parenthesized(text string) string {
	if text == "" {
		return ""
	}
	return " (" + text + ")"
}

func newAnnounce(env *cli.Env) *cobra.Command {
	c := collectionChange{env: env}
	command := &cobra.Command{
		Use:   "announce --bucket URL [--to MANIFEST] [--canary GROUP]",
		Short: "Tell servers to serve a validated manifest",
		Long: `Announce makes a manifest, the newest validated one unless --to names another,
the one that servers without a pin serve. It must have been validated. Servers
learn of it within a second.

With --canary only the servers of a group serve it, until it or a later
manifest is announced to all. To end a canary, announce the manifest of the
other servers to its group; if the canary was bad, run "rollback" to that
manifest. After a rollback only the manifest of "revert" or "discard", or a
later one, can be announced; this ends the rollback.`,
		Example: `  docstore-updater announce --bucket s3://company-docs/jobs --canary zone-a
  docstore-updater announce --bucket s3://company-docs/jobs`,
		Args: cobra.NoArgs,
	}
	command.RunE = func(command *cobra.Command, _ []string) error {
		return c.update(command.Context(), c.number > 0, func(r publish.Record, ref publish.Ref) (publish.Record, error) {
			if c.number == 0 {
				ref = r.Validated
			}
			if command.Flags().Changed("canary") {
				return r.StartCanary(publish.Canary{Group: c.group, To: ref, By: cli.User(), Time: c.env.Now().UTC()})
			}
			return r.Announce(ref)
		})
	}
	command.Flags().StringVar(&c.group, "canary", "", "announce only to this group of servers, as in docserviced --group")
	c.flags.add(command)
	c.addTo(command, "number of the manifest; 0 is the newest validated one", false)
	return command
}

func newPin(env *cli.Env) *cobra.Command {
	c := collectionChange{env: env}
	command := &cobra.Command{
		Use:   "pin --bucket URL --to MANIFEST [--group GROUP]",
		Short: "Hold servers to a manifest",
		Long: `Pin makes all servers, or those of a group, serve a manifest, whatever is
announced, until "unpin". A group with a newer manifest is a canary.`,
		Example: `  docstore-updater pin --bucket s3://company-docs/jobs --to 41 --group canary --reason parser-2`,
		Args:    cobra.NoArgs,
	}
	command.RunE = func(command *cobra.Command, _ []string) error {
		return c.update(command.Context(), true, func(r publish.Record, ref publish.Ref) (publish.Record, error) {
			return r.Pin(c.pin(ref))
		})
	}
	c.flags.add(command)
	c.addTo(command, "number of the manifest", true)
	c.addGroup(command)
	c.addReason(command)
	return command
}

func newUnpin(env *cli.Env) *cobra.Command {
	c := collectionChange{env: env}
	acceptBad := false
	command := &cobra.Command{
		Use:   "unpin --bucket URL [--group GROUP]",
		Short: "Let servers follow the announcements again",
		Long: `Unpin ends a pin. It refuses, unless --accept-bad is given, if a manifest that
is marked as bad would be served then, and after "rollback": run "revert", then
validate and announce its manifest, which ends the pin.`,
		Example: `  docstore-updater unpin --bucket s3://company-docs/jobs --group canary`,
		Args:    cobra.NoArgs,
	}
	command.RunE = func(command *cobra.Command, _ []string) error {
		return c.update(command.Context(), false, func(r publish.Record, _ publish.Ref) (publish.Record, error) {
			return r.Unpin(c.group, acceptBad)
		})
	}
	c.flags.add(command)
	c.addGroup(command)
	command.Flags().BoolVar(&acceptBad, "accept-bad", false, "allow that entries of manifests marked as bad are served")
	return command
}

func newRollback(env *cli.Env) *cobra.Command {
	c := collectionChange{env: env}
	command := &cobra.Command{
		Use:   "rollback --bucket URL --to MANIFEST",
		Short: "Go back to a manifest, and mark the later ones as bad",
		Long: `Rollback pins all servers to a manifest, ends pins and canaries of groups at
later ones, and marks all later manifests as bad: they cannot be announced or
pinned any more. Nothing else is announced, because later manifests contain the
entries of the bad ones. Ingest and publish continue. To go forward again, run
"revert", then validate and announce its manifest.`,
		Example: `  docstore-updater rollback --bucket s3://company-docs/jobs --to 41 --reason bad-ingest`,
		Args:    cobra.NoArgs,
	}
	command.RunE = func(command *cobra.Command, _ []string) error {
		return c.update(command.Context(), true, func(r publish.Record, ref publish.Ref) (publish.Record, error) {
			return r.Rollback(c.pin(ref))
		})
	}
	c.flags.add(command)
	c.addTo(command, "number of the manifest", true)
	c.addReason(command)
	return command
}

// validation are the flags of validate.
type validation struct {
	collectionChange
	bounds  publish.Bounds
	percent float64
	dir     string
	command string
	quiet   bool
}

func newValidate(env *cli.Env) *cobra.Command {
	v := validation{collectionChange: collectionChange{env: env}}
	command := &cobra.Command{
		Use:   "validate --bucket URL [--to MANIFEST]",
		Short: "Verify a manifest in an object store before it is announced",
		Long: `Validate reads the files of a manifest, the newest unless --to names another,
back from the bucket and verifies digests, checksums and the chain of segments.
Then it checks the bounds that flags set and runs the command of --run, with
the directory of the queue as its last argument; it must exit with status 0. A
manifest that passes can be announced. One that is outside the bounds is marked
as bad and is never served. If the bucket is damaged, nothing is marked:
publish again, then validate again.

Files are kept in the directory of --queue, so that the next run downloads only
new ones. Without it everything is downloaded into a temporary directory.`,
		Example: `  docstore-updater validate --bucket s3://company-docs/jobs --queue /srv/validate/jobs --max-deletes 5`,
		Args:    cobra.NoArgs,
	}
	command.RunE = func(command *cobra.Command, _ []string) error { return v.run(command.Context()) }
	v.flags.add(command)
	v.addTo(command, "number of the manifest; 0 is the newest", false)
	flags := command.Flags()
	flags.StringVar(&v.dir, "queue", "", "directory that keeps the files between runs")
	flags.StringSliceVar(&v.bounds.RequiredIDs, "require-id", nil, "id that must have a document; may be repeated")
	flags.Int64Var(&v.bounds.MinDocuments, "min-documents", 0, "least number of documents, superseded ones included")
	flags.Float64Var(&v.percent, "max-deletes", 0, "most deletes since the last validated manifest, in percent of its documents")
	flags.StringVar(&v.command, "run", "", "program to run on the queue's directory")
	flags.BoolVar(&v.quiet, "quiet", false, "show no progress")
	return command
}

func (v *validation) run(ctx context.Context) error {
	if v.percent < 0 || v.percent > 100 {
		return cli.Usagef("--max-deletes %v: want 0 to 100 percent", v.percent)
	}
	v.bounds.MaxDeletes = v.percent / 100
	b, err := v.flags.open(ctx, v.env.Log)
	if err != nil {
		return err
	}
	defer b.Close()
	m, ref, err := publish.FindManifest(ctx, b, v.number, v.env.Now)
	if err != nil {
		return fmt.Errorf("validate %s: %w", v.flags.url, err)
	}
	dir := v.dir
	if dir == "" {
		if dir, err = os.MkdirTemp("", "docstore-validate-"); err != nil {
			return err
		}
		defer func() { _ = os.RemoveAll(dir) }() // of the temporary files
	}
	failure := v.validate(ctx, b, m, dir)
	change := func(r publish.Record, ref publish.Ref) (publish.Record, error) { return r.Validate(ref) }
	switch {
	case errors.Is(failure, publish.ErrRejected):
		change = func(r publish.Record, ref publish.Ref) (publish.Record, error) { return r.Refuse(ref) }
	case failure != nil:
		return fmt.Errorf("validate manifest %d of %s: %w", ref.Number, v.flags.url, failure)
	}
	v.number = ref.Number
	if err := v.update(ctx, true, change); err != nil {
		return errors.Join(failure, err)
	}
	if failure != nil {
		return fmt.Errorf("manifest %d of %s is marked as bad: %w", ref.Number, v.flags.url, failure)
	}
	return nil
}

// validate returns an error that matches ErrRejected if the manifest must not be served.
func (v *validation) validate(ctx context.Context, b bucket.Bucket, m *publish.Manifest, dir string) error {
	log, err := publish.OpenLog(ctx, b, v.env.Now)
	if err != nil {
		return err
	}
	record, err := log.Load(ctx)
	if err != nil {
		return err
	}
	var accepted *publish.Manifest
	if n := record.Validated.Number; n > 0 && n < m.Number {
		if accepted, _, err = publish.FindManifest(ctx, b, n, v.env.Now); err != nil {
			return err
		}
	}
	progress, finish := meter.Work(v.env, "downloading", v.quiet)
	err = publish.Validate(ctx, b, m, accepted, dir, v.bounds, &publish.Options{Now: v.env.Now, Progress: progress})
	finish()
	if err != nil || v.command == "" {
		return err
	}
	command := exec.CommandContext(ctx, v.command, dir)
	command.Stdout, command.Stderr = v.env.Stderr, v.env.Stderr
	err = command.Run()
	if exit := new(exec.ExitError); errors.As(err, &exit) && exit.Exited() {
		return publish.Rejected("%s exited with status %d", v.command, exit.ExitCode())
	}
	return err
}
