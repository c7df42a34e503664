package updater

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"docstore/cmd/internal/cli"
	"docstore/cmd/internal/meter"
	"docstore/internal/units"
	"docstore/queue/maintain"
)

func newCheck(env *cli.Env) *cobra.Command {
	var dir string
	var quiet, decode, asJSON bool
	command := &cobra.Command{
		Use:   "check --queue DIR",
		Short: "Verify every byte of a queue",
		Long: `Check reads the whole queue and verifies every header, block, document and
footer, and that each segment continues the one before it. It lists all damage
and missing segments on standard output, and then exits with status 1. The
queue may be in use: incomplete segments are counted, and are not damage. Check
verifies checksums, at the speed of the disk; --decode also decompresses each
document, which takes ten times as long and verifies the codec.`,
		Example: `  docstore-updater check --queue /srv/queue/jobs`,
		Args:    cobra.NoArgs,
	}
	command.RunE = func(command *cobra.Command, _ []string) error {
		dirs, err := queueDirs(dir)
		if err != nil {
			return err
		}
		progress, finish := meter.Work(env, "checking", quiet)
		defer finish()
		var report checkReport
		for _, queueDir := range dirs {
			r, err := maintain.Check(command.Context(), queueDir, &maintain.CheckOptions{Decode: decode, Progress: progress})
			if err != nil {
				return fmt.Errorf("checking the queue %s: %w", queueDir, err)
			}
			shard := ""
			if len(dirs) > 1 {
				shard = queueDir
			}
			report.add(shard, r)
		}
		finish()
		if asJSON {
			err = report.printJSON(env)
		} else {
			err = report.print(env)
		}
		return errors.Join(err, report.err(dir))
	}
	addQueueFlag(command, &dir)
	command.Flags().BoolVar(&decode, "decode", false, "also decompress each document")
	command.Flags().BoolVar(&asJSON, "json", false, "print a JSON object")
	command.Flags().BoolVar(&quiet, "quiet", false, "do not show progress")
	return command
}

// checkReport is the sum of the reports of the shards.
type checkReport struct {
	maintain.Report
	missing []string
}

// add adds the report of a shard; empty: of the only one.
func (c *checkReport) add(shard string, r maintain.Report) {
	c.Segments += r.Segments
	c.Blocks += r.Blocks
	c.Documents += r.Documents
	c.Deletes += r.Deletes
	c.Bytes += r.Bytes
	c.Lost += r.Lost
	c.Unfinished += r.Unfinished
	c.Damage = append(c.Damage, r.Damage...)
	c.Unlisted += r.Unlisted
	for _, number := range r.Missing {
		missing := fmt.Sprintf("segment %d", number)
		if shard != "" {
			missing += " of " + shard
		}
		c.missing = append(c.missing, missing)
	}
}

// printJSON writes the report as an object.
func (c *checkReport) printJSON(env *cli.Env) error {
	r := c.Report
	damage := make([]string, len(r.Damage))
	for i, d := range r.Damage {
		damage[i] = d.Error()
	}
	return env.PrintJSON(struct {
		Segments   int      `json:"segments"`
		Blocks     int64    `json:"blocks"`
		Documents  int64    `json:"documents"`
		Deletes    int64    `json:"deletes"`
		Bytes      int64    `json:"bytes"`
		Lost       int64    `json:"lost_documents"`
		Unfinished int64    `json:"uncommitted_bytes"`
		Damage     []string `json:"damage"`
		Unlisted   int      `json:"unlisted_damage"`
		Missing    []string `json:"missing"`
	}{r.Segments, r.Blocks, r.Documents, r.Deletes, r.Bytes, r.Lost, r.Unfinished, damage, r.Unlisted, append([]string{}, c.missing...)})
}

func (c *checkReport) print(env *cli.Env) error {
	out, report := cli.NewOutput(env.Stdout), c.Report
	for _, damage := range report.Damage {
		out.Printf("damaged: %s\n", damage)
	}
	out.Printf("%s, %s, %s, %s, %s verified\n",
		units.FormatCountOf(int64(report.Segments), "segment", "segments"), units.FormatCountOf(report.Blocks, "block", "blocks"),
		units.FormatCountOf(report.Documents, "document", "documents"), units.FormatCountOf(report.Deletes, "delete", "deletes"), units.FormatBytes(report.Bytes))
	if report.Lost > 0 {
		out.Printf("%s of the documents were lost before a repair and are unavailable\n", units.FormatCount(report.Lost))
	}
	if report.Unfinished > 0 {
		out.Printf("%s are not committed yet\n", units.FormatBytes(report.Unfinished))
	}
	for _, missing := range c.missing {
		out.Printf("missing: %s\n", missing)
	}
	return out.Flush()
}

// err returns an error if the queue is damaged.
func (c *checkReport) err(dir string) error {
	if damaged, missing := len(c.Damage)+c.Unlisted, len(c.missing); damaged+missing > 0 {
		return fmt.Errorf("%s is damaged in %s and lacks %s; copy these segments from a machine where they are intact, or, at the source, see repair --help",
			dir, units.FormatCountOf(int64(damaged), "place", "places"), units.FormatCountOf(int64(missing), "segment", "segments"))
	}
	return nil
}
