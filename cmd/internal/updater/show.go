package updater

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"docstore/cmd/internal/cli"
	"docstore/internal/units"
	"docstore/queue/bucket"
	"docstore/queue/publish"
)

// manifestDetails is the output of show --json.
type manifestDetails struct {
	manifestLine
	Since uint64 `json:"since"` // the manifest that it is compared with; 0: none
	// NewFiles of NewBytes are listed by this manifest only.
	NewFiles int   `json:"new_files"`
	NewBytes int64 `json:"new_bytes"`
	// Ids counts the ids that differ, if --queue was given.
	IDs *publish.Difference `json:"ids,omitempty"`
}

// shower are the flags of show.
type shower struct {
	env    *cli.Env
	flags  bucketFlags
	since  uint64
	dir    string
	asJSON bool
}

func newShow(env *cli.Env) *cobra.Command {
	s := shower{env: env}
	command := &cobra.Command{
		Use:   "show MANIFEST --bucket URL [--since MANIFEST] [--queue DIR]",
		Short: "Describe a manifest, and what it has changed",
		Long: `Show prints the line of a manifest as "manifests" does, and compares it with
the one before, or that of --since: files and bytes that a server of the other
one downloads. With --queue it also counts the documents that were added,
changed and deleted. DIR is the queue or a directory of "validate"; files that
it does not have are downloaded into DIR.manifest-N, which is removed at the
end.`,
		Example: `  docstore-updater show 42 --bucket s3://company-docs/jobs --since 40 --queue /srv/queue/jobs`,
		Args:    cobra.ExactArgs(1),
	}
	command.RunE = func(command *cobra.Command, args []string) error {
		number, err := strconv.ParseUint(args[0], 10, 64)
		if err != nil || number == 0 {
			return cli.Usagef("%s: give the number of a manifest", args[0])
		}
		if err := s.run(command.Context(), number); err != nil {
			return fmt.Errorf("show manifest %d of %s: %w", number, s.flags.url, err)
		}
		return nil
	}
	s.flags.add(command)
	command.Flags().Uint64Var(&s.since, "since", 0, "manifest to compare with; 0 is the one before")
	command.Flags().StringVar(&s.dir, "queue", "", "directory with files of the manifests, to count documents")
	command.Flags().BoolVar(&s.asJSON, "json", false, "print a JSON object")
	return command
}

func (s *shower) run(ctx context.Context, number uint64) error {
	b, err := s.flags.open(ctx, s.env.Log)
	if err != nil {
		return err
	}
	defer b.Close()
	m, _, err := publish.FindManifest(ctx, b, number, s.env.Now)
	if err != nil {
		return err
	}
	log, err := publish.OpenLog(ctx, b, s.env.Now)
	if err != nil {
		return err
	}
	record, err := log.Load(ctx)
	if err != nil {
		return err
	}
	since, err := s.findSince(ctx, b, m)
	if err != nil {
		return err
	}
	details := manifestDetails{manifestLine: describeManifest(m, record), Since: since.Number}
	details.NewFiles, details.NewBytes = m.FilesSince(since)
	if s.dir != "" && since.Number > 0 {
		if err := requireDir(s.dir); err != nil {
			return err
		}
		d, err := publish.Compare(ctx, b, since, m, filepath.Clean(s.dir), &publish.Options{Now: s.env.Now})
		if err != nil {
			return err
		}
		details.IDs = &d
	}
	return s.print(details)
}

// findSince returns the manifest to compare with; number 0: there is none.
func (s *shower) findSince(ctx context.Context, b bucket.Bucket, m *publish.Manifest) (*publish.Manifest, error) {
	number := s.since
	if number == 0 {
		number = m.Continues().Number
	}
	if number == 0 {
		return new(publish.Manifest), nil
	}
	since, _, err := publish.FindManifest(ctx, b, number, s.env.Now)
	return since, err
}

func (s *shower) print(d manifestDetails) error {
	out := cli.NewOutput(s.env.Stdout)
	if s.asJSON {
		out.PrintJSON(d)
		return out.Flush()
	}
	out.Printf("manifest %d of %s: %s, %s, %s, %s\n", d.Number, d.Time.Format(time.RFC3339), units.FormatCountOf(int64(d.Files), "file", "files"),
		units.FormatBytes(d.Bytes), units.FormatCountOf(d.Documents, "document", "documents"), units.FormatCountOf(d.Deletes, "delete", "deletes"))
	if state := d.state(); state != "" {
		out.Printf("%s\n", state)
	}
	if d.Since > 0 {
		out.Printf("since manifest %d: %s of %s\n", d.Since, units.FormatCountOf(int64(d.NewFiles), "new file", "new files"), units.FormatBytes(d.NewBytes))
	}
	if d.IDs != nil {
		out.Printf("%s added, %s changed, %s deleted\n", units.FormatCountOf(d.IDs.Added, "document", "documents"),
			units.FormatCount(d.IDs.Changed), units.FormatCount(d.IDs.Deleted))
	}
	return out.Flush()
}
