package updater

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"docstore/cmd/internal/cli"
	"docstore/ingest/sources"
	"docstore/queue"
	"docstore/queue/publish"
)

// sourceReport is the output of explain --json.
type sourceReport struct {
	ID        string        `json:"id"`
	Queue     string        `json:"queue"` // directory of the queue, or of the shard of the id
	Verdict   sourceVerdict `json:"verdict"`
	Reason    string        `json:"reason"`
	Command   string        `json:"command,omitempty"`
	End       string        `json:"end"`                 // of the queue
	Newest    *version      `json:"newest,omitempty"`    // without its document
	Documents int           `json:"documents"`           // versions that are not deletes
	Before    string        `json:"after_in,omitempty"`  // the record is after this place in the source
	After     string        `json:"up_to_in,omitempty"`  // and not after this one
	Manifest  uint64        `json:"manifest,omitempty"`  // that published the newest entry first; 0: none
	Increment uint64        `json:"increment,omitempty"` // of the manifest
	Earlier   bool          `json:"or_earlier,omitempty"`
	Announced uint64        `json:"announced,omitempty"` // manifest
}

func newExplain(env *cli.Env) *cobra.Command {
	var dir string
	var flags bucketFlags
	var asJSON bool
	command := &cobra.Command{
		Use:   "explain ID {--queue DIR [--bucket URL] | --bucket URL}",
		Short: "State at the source why an id is served or not",
		Long: `Explain finds the newest entry with the id in a queue, and states whether
servers should have it: its address and time, the place of its record in the
source, as the lines of a file between two commits, and with --bucket the
manifest or increment that published it first, and whether a server group is
held at an older one. "boxcar explain" asks the servers.

A queue has no index: explain reads the ids of all entries. The queue may be in
use, or a copy. Without --queue it first downloads the shard of the id from the
bucket into a temporary directory. The exit status is 0 if servers should have
a document, and otherwise 1.`,
		Example: `  docstore-updater explain 4711 --queue /srv/queue/jobs
  docstore-updater explain 4711 --queue /srv/queue/jobs --bucket s3://company-docs/jobs --json
  docstore-updater explain 4711 --bucket s3://company-docs/jobs`,
		Args: cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			if err := checkID(args[0]); err != nil {
				return err
			}
			if dir == "" && flags.url == "" {
				return cli.Usagef("give --queue, --bucket or both")
			}
			facts := sourceFacts{ID: args[0], Dir: dir, Bucket: flags.url, Now: env.Now()}
			if err := facts.read(command.Context(), env, &flags); err != nil {
				return err
			}
			return facts.report(env, asJSON)
		},
	}
	command.Flags().StringVar(&dir, "queue", "", "directory of the queue")
	command.Flags().StringVar(&flags.url, "bucket", "", "URL of the collection, to find manifests: s3://BUCKET/PREFIX or file:///DIRECTORY")
	addS3Flags(command, &flags.options)
	addEtcdFlag(command.Flags(), &flags.etcd)
	command.Flags().BoolVar(&asJSON, "json", false, "print a JSON object")
	return command
}

// read reads the queue, and the bucket if there is one.
func (f *sourceFacts) read(ctx context.Context, env *cli.Env, flags *bucketFlags) error {
	if f.Dir == "" {
		dir, err := os.MkdirTemp("", "docstore-explain-")
		if err != nil {
			return err
		}
		defer func() { _ = os.RemoveAll(dir) }() // temporary
		shard, err := f.download(ctx, env, flags, dir)
		if err != nil {
			return fmt.Errorf("reading %s: %w", flags.url, err)
		}
		f.Dir, f.Queue = "DIR", dir // commands name the first one
		return f.readShard(ctx, env, flags, shard)
	}
	layout, err := readLayout(f.Dir)
	if err != nil {
		return err
	}
	shard := layout.ShardString(f.ID)
	f.Queue = layout.Dir(f.Dir, shard)
	return f.readShard(ctx, env, flags, shard)
}

// download makes the queue of the shard of the id from the newest manifest and its increments.
func (f *sourceFacts) download(ctx context.Context, env *cli.Env, flags *bucketFlags, dir string) (shard int, err error) {
	b, err := flags.open(ctx, env.Log)
	if err != nil {
		return 0, err
	}
	defer b.Close()
	m, ref, err := publish.FindManifest(ctx, b, 0, env.Now)
	if err != nil {
		return 0, err
	}
	shard = m.Layout.ShardString(f.ID)
	return shard, publish.RestoreShard(ctx, b, ref, m, shard, dir, nil)
}

// readShard reads the queue of the shard of the id, and the bucket if there is one.
func (f *sourceFacts) readShard(ctx context.Context, env *cli.Env, flags *bucketFlags, shard int) error {
	reader, err := queue.OpenReader(f.Queue, &queue.ReaderOptions{Logger: env.Log})
	if err != nil {
		return cannotOpen(f.Queue, err)
	}
	defer func() { _ = reader.Close() }() // read only
	if err := f.readQueue(ctx, reader); err != nil {
		return fmt.Errorf("reading the queue %s: %w", f.Queue, err)
	}
	if flags.url == "" || f.Newest == nil {
		return nil
	}
	if err := f.readBucket(ctx, env, flags, shard); err != nil {
		return fmt.Errorf("reading %s: %w", flags.url, err)
	}
	return nil
}

// readQueue finds the newest entry, and the place of its record in the source.
func (f *sourceFacts) readQueue(ctx context.Context, reader *queue.Reader) error {
	var block, before, beforeNewest queue.Address // the last block, the one before, and that before the newest entry
	id := []byte(f.ID)
	err := reader.Scan(ctx, queue.Position{}, func(e queue.Entry) error {
		if at := (queue.Address{Segment: e.Address.Segment, Block: e.Address.Block}); at != block {
			before, block = block, at
		}
		f.End = e.Next
		if !bytes.Equal(e.ID, id) {
			return nil
		}
		if !e.Deleted {
			f.Documents++
		}
		newest := e
		newest.ID = nil // valid in this call
		f.Newest, beforeNewest = &newest, before
		return nil
	})
	if err != nil || f.Newest == nil {
		return err
	}
	for _, place := range []struct {
		at   queue.Address
		text *string
	}{{beforeNewest, &f.Before}, {f.Newest.Address, &f.After}} {
		if place.at.Segment == 0 {
			continue
		}
		if cursor, err := reader.BlockCursor(place.at); err == nil { // a block may have been compacted away since
			*place.text = sources.Describe(cursor)
		}
	}
	return nil
}

// readBucket finds the manifest of the newest entry.
func (f *sourceFacts) readBucket(ctx context.Context, env *cli.Env, flags *bucketFlags, shard int) error {
	b, log, err := flags.openLog(ctx, env)
	if err != nil {
		return err
	}
	defer b.Close()
	if f.Record, err = log.Load(ctx); err != nil {
		return err
	}
	f.Place, err = publish.Find(ctx, b, f.Record, shard, queue.Position{Queue: f.End.Queue, Next: f.Newest.Address})
	return err
}

// report prints the verdict.
func (f *sourceFacts) report(env *cli.Env, asJSON bool) error {
	r := sourceReport{
		ID: f.ID, Queue: f.Queue, End: f.End.Next.String(), Documents: f.Documents, Before: f.Before, After: f.After,
		Manifest: f.Place.Manifest, Increment: f.Place.Increment, Earlier: f.Place.Older, Announced: f.Record.Announced.Number,
	}
	r.Verdict, r.Reason, r.Command = explainSource(*f)
	if e := f.Newest; e != nil {
		r.Newest = &version{Address: e.Address.String(), Appended: e.Appended.UTC(), Delete: e.Deleted}
		if !e.Expires.IsZero() {
			expires := e.Expires.UTC()
			r.Newest.Expires = &expires
		}
	}
	out := cli.NewOutput(env.Stdout)
	if asJSON {
		out.PrintJSON(r)
	} else {
		r.print(out)
	}
	if err := out.Flush(); err != nil {
		return err
	}
	if r.Verdict == sourcePresent || r.Verdict == sourceAnnounced {
		return nil
	}
	return cli.Bare(fmt.Errorf("%s: %s", r.Verdict, r.Reason))
}

// print writes the facts.
func (r *sourceReport) print(out *cli.Output) {
	line := func(name, value string) {
		if value != "" {
			out.Printf("%-10s %s\n", name, value)
		}
	}
	line("queue", fmt.Sprintf("%s, up to %s", r.Queue, r.End))
	if e := r.Newest; e != nil {
		what := "document"
		if e.Delete {
			what = "delete"
		}
		line("newest", fmt.Sprintf("%s %s, appended at %s", what, e.Address, e.Appended.Format(time.RFC3339)))
		line("documents", fmt.Sprint(r.Documents))
	}
	switch {
	case r.After != "" && r.Before != "":
		line("source", r.After+" or before, after "+r.Before)
	case r.After != "":
		line("source", r.After+" or before")
	}
	if r.Manifest > 0 {
		text := fmt.Sprintf("manifest %d", r.Manifest)
		if r.Increment > 0 {
			text += fmt.Sprintf(", increment %d", r.Increment)
		}
		if r.Earlier {
			text += " or earlier"
		}
		line("published", fmt.Sprintf("%s; manifest %d is announced", text, r.Announced))
	}
	line("next", r.Command)
	if r.Verdict == sourcePresent || r.Verdict == sourceAnnounced {
		out.Printf("%s: %s\n", r.Verdict, r.Reason)
	}
}
