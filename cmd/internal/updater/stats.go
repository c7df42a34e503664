package updater

import (
	"context"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"docstore/cmd/internal/cli"
	"docstore/internal/units"
	"docstore/queue"
	"docstore/queue/maintain"
)

func newStats(env *cli.Env) *cobra.Command {
	var dir string
	var asJSON, live bool
	memory := units.Size(maintain.DefaultUsageMemory)
	command := &cobra.Command{
		Use:   "stats --queue DIR",
		Short: "Describe the segments of a queue",
		Long: `Stats lists the segments of a queue: the number of documents and deletes in
each, their raw and stored bytes, and their time range. Of a segment that is
not sealed, the committed part counts. The queue may be in use. The last line
is the position of the queue's end, as truncate takes it. With several shards it
lists the segments of all; each shard has an end, see DIR/shard-0000.

With --live it also counts the live bytes exactly: stored bytes of documents
that can still be read are live, those of overwritten, deleted and expired
documents are dead. It reads the tables of the whole queue, but no documents,
and takes 67 bytes of memory per id; if that is more than --memory, it reads
them several times. Entries that are committed meanwhile are neither live nor
dead. The canaries of boxcar probe are not counted as live documents.`,
		Example: `  docstore-updater stats --queue /srv/queue/jobs
  docstore-updater stats --queue /srv/queue/jobs --json | jq .totals
  docstore-updater stats --queue /srv/queue/jobs --live`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			stats, err := readStats(command.Context(), env, dir, live, int64(memory))
			if err != nil {
				return err
			}
			if asJSON {
				return env.PrintJSON(stats)
			}
			return stats.print(env)
		},
	}
	addQueueFlag(command, &dir)
	command.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	command.Flags().BoolVar(&live, "live", false, "count live and dead bytes")
	command.Flags().Var(&memory, "memory", "memory for --live")
	return command
}

// queueStats is the output of stats.
type queueStats struct {
	Shards   int            `json:"shards,omitempty"` // 0: one
	Segments []segmentStats `json:"segments"`
	Totals   totals         `json:"totals"`
	// End is the position after the last entry of the only shard; truncate accepts it.
	End string `json:"end,omitempty"`
}

type segmentStats struct {
	Shard           *int            `json:"shard,omitempty"` // nil: the only one
	Segment         queue.SegmentID `json:"segment"`
	LastSegment     queue.SegmentID `json:"last_segment,omitempty"` // of those that a rewrite replaces
	Generation      uint32          `json:"generation,omitempty"`   // of a rewrite
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
	*usage
}

// usage is the additional output of --live.
type usage struct {
	LiveDocuments int64 `json:"live_documents"`
	LiveBytes     int64 `json:"live_bytes"`
	DeadBytes     int64 `json:"dead_bytes"`
}

func (c *counts) add(d counts) {
	c.Blocks += d.Blocks
	c.Documents += d.Documents
	c.Deletes += d.Deletes
	c.RawBytes += d.RawBytes
	c.StoredBytes += d.StoredBytes
	c.FileBytes += d.FileBytes
	if d.usage != nil {
		c.LiveDocuments += d.LiveDocuments
		c.LiveBytes += d.LiveBytes
		c.DeadBytes += d.DeadBytes
	}
}

// readStats returns the statistics of all shards.
func readStats(ctx context.Context, env *cli.Env, dir string, live bool, memoryBytes int64) (*queueStats, error) {
	dirs, err := queueDirs(dir)
	if err != nil {
		return nil, err
	}
	stats := &queueStats{Segments: []segmentStats{}}
	if len(dirs) > 1 {
		stats.Shards = len(dirs)
	}
	if live {
		stats.Totals.usage = new(usage)
	}
	for i, dir := range dirs {
		if err := stats.read(ctx, env, i, dir, memoryBytes); err != nil {
			return nil, err
		}
	}
	return stats, nil
}

// read adds the statistics of a shard.
func (q *queueStats) read(ctx context.Context, env *cli.Env, shard int, dir string, memoryBytes int64) error {
	reader, err := queue.OpenReader(dir, &queue.ReaderOptions{Logger: env.Log})
	if err != nil {
		return cannotOpen(dir, err)
	}
	defer func() { _ = reader.Close() }() // read only
	var used []maintain.Usage             // ascending
	if q.Totals.usage != nil {
		if used, err = maintain.Measure(ctx, reader, env.Now(), memoryBytes); err != nil {
			return fmt.Errorf("accounting for the bytes of %s: %w; without --live, stats lists the readable segments", dir, err)
		}
	}
	segments, err := reader.Segments()
	if err != nil {
		return fmt.Errorf("reading the segments of %s: %w", dir, err)
	}
	for _, s := range segments {
		q.add(shard, s, usageOf(s, used))
	}
	if end := reader.End(); !end.IsZero() && q.Shards == 0 {
		q.End = end.Next.String()
	}
	return nil
}

// usageOf adds up the usage of the segments of a file: a rewrite replaces several.
func usageOf(s queue.SegmentInfo, used []maintain.Usage) (sum usage) {
	for _, u := range used {
		if s.ID <= u.Segment && u.Segment <= s.Last {
			sum.LiveDocuments += u.LiveDocuments
			sum.LiveBytes += u.LiveBytes
			sum.DeadBytes += u.DeadBytes()
		}
	}
	return sum
}

func (q *queueStats) add(shard int, s queue.SegmentInfo, u usage) {
	c := counts{
		Blocks: s.Blocks, Documents: s.Documents, Deletes: s.Deletes,
		RawBytes: s.RawBytes, StoredBytes: s.StoredBytes, FileBytes: s.Bytes,
	}
	if q.Totals.usage != nil {
		c.usage = &u
	}
	row := segmentStats{
		Segment: s.ID, Generation: s.Generation, Sealed: s.Sealed, Codec: s.Codec, DictionaryBytes: s.DictionaryBytes, counts: c,
		FirstAppended: optionalTime(s.FirstAppended), LastAppended: optionalTime(s.LastAppended),
	}
	if s.Generation > 0 {
		row.LastSegment = s.Last
	}
	if q.Shards > 0 {
		row.Shard = &shard
	}
	q.Segments = append(q.Segments, row)
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
	ofUse := ""
	if q.Totals.usage != nil {
		ofUse = "live docs\tlive bytes\tdead bytes\t"
	}
	out.Printf("segment\tstate\tcodec\tblocks\tdocuments\tdeletes\traw\tstored\tfile\t%slast appended\t\n", ofUse)
	for _, s := range q.Segments {
		state, last := "open", ""
		if s.Sealed {
			state = "sealed"
		}
		if s.LastAppended != nil {
			last = s.LastAppended.Local().Format(time.DateTime)
		}
		out.Printf("%s\t%s\t%s\t%s%s\t\n", s.name(), state, s.Codec, s.row(), last)
	}
	out.Printf("%d\t%d sealed\t\t%s\t\n", q.Totals.Segments, q.Totals.Sealed, q.Totals.row())
	if err := out.Flush(); err != nil {
		return err
	}
	if err := table.Flush(); err != nil || q.End == "" {
		return err
	}
	_, err := fmt.Fprintf(env.Stdout, "the queue ends at %s\n", q.End)
	return err
}

// name returns the segment's number, or for a rewrite those of the segments it replaces, after
// that of its shard.
func (s *segmentStats) name() string {
	name := fmt.Sprint(s.Segment)
	if s.Generation > 0 {
		name = fmt.Sprintf("%d-%d", s.Segment, s.LastSegment)
	}
	if s.Shard != nil {
		name = fmt.Sprintf("%d: %s", *s.Shard, name)
	}
	return name
}

func (c *counts) row() string {
	row := fmt.Sprintf("%s\t%s\t%s\t%s\t%s\t%s\t", units.FormatCount(c.Blocks), units.FormatCount(c.Documents), units.FormatCount(c.Deletes),
		units.FormatBytes(c.RawBytes), units.FormatBytes(c.StoredBytes), units.FormatBytes(c.FileBytes))
	if c.usage != nil {
		row += fmt.Sprintf("%s\t%s\t%s\t", units.FormatCount(c.LiveDocuments), units.FormatBytes(c.LiveBytes), units.FormatBytes(c.DeadBytes))
	}
	return row
}
