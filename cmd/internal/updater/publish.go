package updater

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"docstore/cmd/internal/cli"
	"docstore/cmd/internal/meter"
	"docstore/internal/units"
	"docstore/queue/bucket"
	"docstore/queue/publish"
)

func newPublish(env *cli.Env) *cobra.Command {
	var dir string
	var flags bucketFlags
	var quiet, newGeneration bool
	command := &cobra.Command{
		Use:   "publish --queue DIR --bucket URL",
		Short: "Upload the sealed segments of a queue to an object store",
		Long: `Publish uploads the sealed segments of a queue that the bucket lacks, and
commits a numbered manifest that lists all of them. "manifests" lists the
manifests, "restore" makes a queue from one. Entries in the open segment are
not published: run "seal" before, or wait until the segment is full. A queue
with shards is published as one collection.

The prefix in the URL is the collection. The first publish to it runs "bucket
check" and refuses a store that fails. Updaters may be writing. Of two
processes that publish to one collection, the one that started last succeeds.
If nothing was sealed since the last publish, no manifest is committed.

Publish refuses a queue that lacks entries of the newest manifest, such as one
that was restored from an older copy, and another queue than the bucket holds.
With --new-generation another queue replaces the whole collection: validate its
manifest with a new --queue directory, then announce it. Servers build its
index first. Until then the old queue is served, but cannot be published any
more. A rollback returns to it.`,
		Example: `  docstore-updater publish --queue /srv/queue/jobs --bucket s3://company-docs/jobs
  docstore-updater publish --queue /srv/queue/jobs --bucket file:///mnt/shared/jobs`,
		Args: cobra.NoArgs,
	}
	command.RunE = func(command *cobra.Command, _ []string) error {
		if err := requireDir(dir); err != nil {
			return err
		}
		return publishQueue(command.Context(), env, dir, &flags, quiet, newGeneration)
	}
	addQueueFlag(command, &dir)
	flags.add(command)
	command.Flags().BoolVar(&newGeneration, "new-generation", false, "let this queue replace the one that the bucket holds")
	command.Flags().BoolVar(&quiet, "quiet", false, "show no progress")
	return command
}

func publishQueue(ctx context.Context, env *cli.Env, dir string, flags *bucketFlags, quiet, newGeneration bool) error {
	b, err := flags.open(ctx, env.Log)
	if err != nil {
		return err
	}
	defer b.Close()
	progress, finish := meter.Work(env, "uploading", quiet)
	p, err := publish.OpenPublisher(ctx, b, dir, &publish.Options{Now: env.Now, Progress: progress, NewGeneration: newGeneration})
	if err != nil {
		return fmt.Errorf("publish %s to %s: %w", dir, flags.url, err)
	}
	defer func() { _ = p.Close() }() // closes a reader
	published, err := p.Publish(ctx)
	finish()
	if err != nil {
		return fmt.Errorf("publish %s to %s: %w", dir, flags.url, err)
	}
	m := published.Manifest
	out := cli.NewOutput(env.Stdout)
	if published.New {
		out.Printf("manifest %d: %s, %s, %s, %s uploaded\n", m.Number, units.FormatCountOf(int64(len(m.Files)), "file", "files"),
			units.FormatCountOf(m.Documents(), "document", "documents"), units.FormatBytes(m.Bytes()), units.FormatBytes(published.Uploaded))
	} else {
		out.Printf("manifest %d has all sealed segments already\n", m.Number)
	}
	return out.Flush()
}

func newManifests(env *cli.Env) *cobra.Command {
	var flags bucketFlags
	var asJSON, verify bool
	command := &cobra.Command{
		Use:   "manifests --bucket URL",
		Short: "List the manifests of a collection in an object store",
		Long: `Manifests lists the manifests that publish has committed, the newest last:
number, time, files, bytes, documents, deletes, and whether it is announced,
pinned or a canary for groups of servers, retained, or bad. With --json it
prints one object per line; --verify --json prints one object.`,
		Example: `  docstore-updater manifests --bucket s3://company-docs/jobs`,
		Args:    cobra.NoArgs,
	}
	command.RunE = func(command *cobra.Command, _ []string) error {
		if verify {
			return verifyObjects(command.Context(), env, &flags, asJSON)
		}
		return listManifests(command.Context(), env, &flags, asJSON)
	}
	flags.add(command)
	command.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	command.Flags().BoolVar(&verify, "verify", false, "read and verify all objects instead")
	return command
}

// manifestLine is a line of manifests --json.
type manifestLine struct {
	Number    uint64    `json:"number"`
	Time      time.Time `json:"time"`
	Files     int       `json:"files"`
	Shards    int       `json:"shards,omitempty"` // 0: one
	Bytes     int64     `json:"bytes"`
	Documents int64     `json:"documents"`
	Deletes   int64     `json:"deletes"`
	Announced bool      `json:"announced"`
	Retained  bool      `json:"retained,omitempty"`
	Pinned    []string  `json:"pinned,omitempty"` // groups; "" is all servers
	Canary    []string  `json:"canary,omitempty"` // groups
	Bad       bool      `json:"bad"`
	// Generation counts the queues that the collection has had, from 1.
	Generation int `json:"generation"`
}

// describeManifest returns the line of a manifest.
func describeManifest(m *publish.Manifest, r publish.Record) manifestLine {
	line := manifestLine{
		Number: m.Number, Time: m.Time, Files: len(m.Files), Bytes: m.Bytes(), Documents: m.Documents(), Deletes: m.Deletes(),
		Announced: m.Number == r.Announced.Number, Bad: r.IsBad(m.Number), Generation: r.Generation(m.Number),
	}
	if m.Layout.Shards > 1 {
		line.Shards = m.Layout.Shards
	}
	for _, ref := range r.Retained {
		line.Retained = line.Retained || ref.Number == m.Number
	}
	for _, p := range r.Pins {
		if p.To.Number == m.Number {
			line.Pinned = append(line.Pinned, p.Group)
		}
	}
	for _, c := range r.Canaries {
		if c.To.Number == m.Number {
			line.Canary = append(line.Canary, c.Group)
		}
	}
	return line
}

// state returns the last column of the list.
func (l manifestLine) state() string {
	var state []string
	if l.Announced {
		state = append(state, "announced")
	}
	for _, group := range l.Pinned {
		state = append(state, "pinned for "+cmp.Or(group, "all"))
	}
	for _, group := range l.Canary {
		state = append(state, "canary for "+group)
	}
	if l.Retained {
		state = append(state, "retained")
	}
	if l.Bad {
		state = append(state, "bad")
	}
	if l.Shards > 0 {
		state = append(state, fmt.Sprintf("%d shards", l.Shards))
	}
	if l.Generation > 1 {
		state = append(state, fmt.Sprintf("generation %d", l.Generation))
	}
	return strings.Join(state, ", ")
}

func listManifests(ctx context.Context, env *cli.Env, flags *bucketFlags, asJSON bool) error {
	b, err := flags.open(ctx, env.Log)
	if err != nil {
		return err
	}
	defer b.Close()
	lines, err := readManifests(ctx, b, env.Now)
	if err != nil {
		return fmt.Errorf("list the manifests of %s: %w", flags.url, err)
	}
	out := cli.NewOutput(env.Stdout)
	if !asJSON {
		out.Printf("%8s  %-20s  %7s  %10s  %14s  %12s  %s\n", "MANIFEST", "TIME", "FILES", "BYTES", "DOCUMENTS", "DELETES", "STATE")
	}
	for _, l := range slices.Backward(lines) {
		if asJSON {
			out.PrintJSON(l)
			continue
		}
		out.Printf("%8d  %-20s  %7d  %10s  %14s  %12s  %s\n", l.Number, l.Time.Format(time.RFC3339), l.Files, units.FormatBytes(l.Bytes), units.FormatCount(l.Documents), units.FormatCount(l.Deletes), l.state())
	}
	return out.Flush()
}

// readManifests returns the lines of all manifests, newest first.
func readManifests(ctx context.Context, b bucket.Bucket, now func() time.Time) ([]manifestLine, error) {
	log, err := publish.OpenLog(ctx, b, now)
	if err != nil {
		return nil, err
	}
	record, err := log.Load(ctx)
	if err != nil {
		return nil, err
	}
	if record.Head.Number == 0 {
		return nil, publish.Refused("the bucket has no manifests: check the URL, or publish a queue to it")
	}
	var lines []manifestLine
	for m, err := range publish.Manifests(ctx, b, record) {
		if err != nil {
			return nil, err
		}
		lines = append(lines, describeManifest(m, record))
	}
	return lines, nil
}

func newRestore(env *cli.Env) *cobra.Command {
	var dir string
	var flags bucketFlags
	var number uint64
	var only int
	var quiet bool
	command := &cobra.Command{
		Use:   "restore --bucket URL {--queue DIR [--to MANIFEST] [--shard N] | --etcd ENDPOINTS}",
		Short: "Restore a queue, or the state in etcd, from an object store",
		Long: `Restore downloads the files of a manifest, the newest unless --to names
another, into a new or empty directory, and verifies the digest of each. If it
is interrupted, run it again: files that are complete are kept. The directory
is then a queue: "append --resume" continues it where the manifest ends.
Entries that were announced after the newest manifest are restored, too, and
entries that were not published are not. With --shard only one shard of several
is restored: a queue for reading, which cannot be published.

Without --queue, restore continues the commits of the collection in etcd, after
etcd has lost its data, or when the commits were made in the bucket until now.
It refuses if etcd holds the newest commit. Publishers have to be started again.`,
		Example: `  docstore-updater restore --bucket s3://company-docs/jobs --queue /srv/queue/jobs
  docstore-updater restore --bucket s3://company-docs/jobs --etcd 10.0.0.1:2379`,
		Args: cobra.NoArgs,
	}
	command.RunE = func(command *cobra.Command, _ []string) error {
		switch {
		case only < -1:
			return cli.Usagef("--shard %d: must not be negative", only)
		case dir != "":
			r := restoring{env: env, dir: dir, flags: &flags, number: number, shard: only, quiet: quiet}
			return r.run(command.Context())
		case flags.etcd != "":
			return restoreRecord(command.Context(), env, &flags)
		}
		return cli.Usagef("--queue is missing; or give --etcd to restore the state in etcd")
	}
	command.Flags().StringVar(&dir, "queue", "", "directory of the queue to make")
	flags.add(command)
	command.Flags().Uint64Var(&number, "to", 0, "number of the manifest; 0 is the newest")
	command.Flags().IntVar(&only, "shard", -1, "restore only this shard; -1: all")
	command.Flags().BoolVar(&quiet, "quiet", false, "show no progress")
	return command
}

// restoreRecord continues the commits in etcd with the newest one of the bucket.
func restoreRecord(ctx context.Context, env *cli.Env, flags *bucketFlags) error {
	b, log, err := flags.openLog(ctx, env)
	if err != nil {
		return err
	}
	defer b.Close()
	record, err := log.Restore(ctx)
	if err != nil {
		return fmt.Errorf("restore %s: %w", flags.url, err)
	}
	out := cli.NewOutput(env.Stdout)
	printState(out, record)
	return out.Flush()
}

// restoring are the flags of restore.
type restoring struct {
	env    *cli.Env
	dir    string
	flags  *bucketFlags
	number uint64
	shard  int // -1: all
	quiet  bool
}

func (r *restoring) run(ctx context.Context) error {
	b, err := r.flags.open(ctx, r.env.Log)
	if err != nil {
		return err
	}
	defer b.Close()
	m, ref, err := publish.FindManifest(ctx, b, r.number, r.env.Now)
	if err == nil && r.shard >= 0 {
		m, err = m.Shard(r.shard)
	}
	if err != nil {
		return fmt.Errorf("restore %s: %w", r.flags.url, err)
	}
	progress, finish := meter.Work(r.env, "downloading", r.quiet)
	options := &publish.Options{Progress: progress}
	err = publish.Restore(ctx, b, m, r.dir, options)
	finish()
	increments := uint64(0)
	if err == nil && r.number == 0 && r.shard < 0 {
		increments, err = publish.RestoreIncrements(ctx, b, ref, m, r.dir, options)
	}
	if err != nil {
		return fmt.Errorf("restore manifest %d of %s: %w", m.Number, r.flags.url, err)
	}
	out := cli.NewOutput(r.env.Stdout)
	out.Printf("%s restored into %s: %s, %s, %s\n", r.what(m), r.dir, units.FormatCountOf(int64(len(m.Files)), "file", "files"),
		units.FormatCountOf(m.Documents(), "document", "documents"), units.FormatBytes(m.Bytes()))
	if increments > 0 {
		out.Printf("%s after it restored\n", units.FormatCountOf(int64(increments), "increment", "increments")) //nolint:gosec // at most publish.MaxIncrements
	}
	return out.Flush()
}

// what names a manifest, and the part of it that is restored.
func (r *restoring) what(m *publish.Manifest) string {
	switch {
	case r.shard >= 0:
		return fmt.Sprintf("manifest %d, shard %d,", m.Number, r.shard)
	case m.Layout.Shards > 1:
		return fmt.Sprintf("manifest %d, %d shards,", m.Number, m.Layout.Shards)
	}
	return fmt.Sprintf("manifest %d", m.Number)
}
