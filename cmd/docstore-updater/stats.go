package main

import (
	"encoding/json"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"docstore/internal/cli"
	"docstore/queue"
)

func newStats(env *cli.Env) *cobra.Command {
	var dir string
	var asJSON bool
	command := &cobra.Command{
		Use:   "stats --queue DIR",
		Short: "Describe the segments of a queue",
		Long: `Stats lists the segments of a queue: how many documents and deletes each holds,
how many bytes the documents have raw and stored, and from when they are. Of a
segment that is not sealed, what is committed counts. The queue may be in use.`,
		Example: `  docstore-updater stats --queue /srv/queue/jobs
  docstore-updater stats --queue /srv/queue/jobs --json | jq .totals`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			stats, err := readStats(env, dir)
			if err != nil {
				return err
			}
			if asJSON {
				encoder := json.NewEncoder(env.Stdout)
				encoder.SetIndent("", "  ")
				return encoder.Encode(stats)
			}
			return stats.print(env)
		},
	}
	addQueueFlag(command, &dir)
	command.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return command
}

// queueStats is what stats prints.
type queueStats struct {
	Segments []segmentStats `json:"segments"`
	Totals   totals         `json:"totals"`
}

type segmentStats struct {
	Segment         queue.SegmentID `json:"segment"`
	Sealed          bool            `json:"sealed"`
	Codec           string          `json:"codec"`
	DictionaryBytes int             `json:"dictionary_bytes"`
	counts
	FirstAppended *time.Time `json:"first_appended,omitempty"`
	LastAppended  *time.Time `json:"last_appended,omitempty"`
}

type totals struct {
	Segments int `json:"segments"`
	Sealed   int `json:"sealed"`
	counts
}

type counts struct {
	Blocks      int64 `json:"blocks"`
	Documents   int64 `json:"documents"`
	Deletes     int64 `json:"deletes"`
	RawBytes    int64 `json:"raw_bytes"`
	StoredBytes int64 `json:"stored_bytes"`
	FileBytes   int64 `json:"file_bytes"`
}

func (c *counts) add(d counts) {
	c.Blocks += d.Blocks
	c.Documents += d.Documents
	c.Deletes += d.Deletes
	c.RawBytes += d.RawBytes
	c.StoredBytes += d.StoredBytes
	c.FileBytes += d.FileBytes
}

func readStats(env *cli.Env, dir string) (*queueStats, error) {
	if err := requireDir(dir); err != nil {
		return nil, err
	}
	reader, err := queue.OpenReader(dir, &queue.ReaderOptions{Logger: env.Log})
	if err != nil {
		return nil, cannotOpen(dir, err)
	}
	defer func() { _ = reader.Close() }() // it has nothing to tell
	segments, err := reader.Segments()
	if err != nil {
		return nil, fmt.Errorf("reading the segments of %s: %w", dir, err)
	}
	stats := &queueStats{Segments: []segmentStats{}}
	for _, s := range segments {
		stats.add(s)
	}
	return stats, nil
}

func (q *queueStats) add(s queue.SegmentInfo) {
	c := counts{
		Blocks: s.Blocks, Documents: s.Documents, Deletes: s.Deletes,
		RawBytes: s.RawBytes, StoredBytes: s.StoredBytes, FileBytes: s.Bytes,
	}
	q.Segments = append(q.Segments, segmentStats{
		Segment: s.ID, Sealed: s.Sealed, Codec: s.Codec, DictionaryBytes: s.DictionaryBytes, counts: c,
		FirstAppended: optionalTime(s.FirstAppended), LastAppended: optionalTime(s.LastAppended),
	})
	q.Totals.Segments++
	if s.Sealed {
		q.Totals.Sealed++
	}
	q.Totals.add(c)
}

func optionalTime(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

func (q *queueStats) print(env *cli.Env) error {
	table := tabwriter.NewWriter(env.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	out := cli.NewOutput(table)
	out.Printf("segment\tstate\tcodec\tblocks\tdocuments\tdeletes\traw\tstored\tfile\tlast appended\t\n")
	for _, s := range q.Segments {
		state, last := "open", ""
		if s.Sealed {
			state = "sealed"
		}
		if s.LastAppended != nil {
			last = s.LastAppended.Local().Format(time.DateTime)
		}
		out.Printf("%d\t%s\t%s\t%s%s\t\n", s.Segment, state, s.Codec, s.row(), last)
	}
	out.Printf("%d\t%d sealed\t\t%s\t\n", q.Totals.Segments, q.Totals.Sealed, q.Totals.row())
	if err := out.Flush(); err != nil {
		return err
	}
	return table.Flush()
}

func (c *counts) row() string {
	return fmt.Sprintf("%s\t%s\t%s\t%s\t%s\t%s\t", cli.FormatCount(c.Blocks), cli.FormatCount(c.Documents), cli.FormatCount(c.Deletes),
		cli.FormatBytes(c.RawBytes), cli.FormatBytes(c.StoredBytes), cli.FormatBytes(c.FileBytes))
}
