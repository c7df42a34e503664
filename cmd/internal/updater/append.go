package updater

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"docstore/cmd/internal/cli"
	"docstore/cmd/internal/meter"
	"docstore/ingest"
	"docstore/ingest/files"
	"docstore/ingest/parquet"
	"docstore/ingest/records"
	"docstore/ingest/sources"
	"docstore/internal/units"
	"docstore/internal/vfs"
	"docstore/queue"
	"docstore/queue/bucket"
	"docstore/queue/codec"
	"docstore/queue/publish"
	"docstore/queue/shardset"
)

// badLinesName is the default file of --bad-lines in the queue's directory, which the updater may
// write to. docstore-sync does not copy it.
const badLinesName = "bad-lines.ndjson"

// minSegmentSize is the minimum of --segment-size. Every segment is a file that is listed,
// copied and mapped: a queue of 1 GiB has 32,768 of this size.
const minSegmentSize = 32 << 10

// minCanary is the minimum of --canary.
const minCanary = time.Second

// announceAge is the default of --segment-age with --announce.
const announceAge = 10 * time.Minute

// appendOptions holds the flags of append.
type appendOptions struct {
	queueDir      string
	from          string // URL or file of sources; empty: the files of the command line
	format        string
	parquetMemory units.Size
	follow        bool
	idField       string
	codec         string
	controlFields bool
	transform     sources.Transform
	rename        []string // of transform
	header        bool
	dryRun        bool
	rate          float64 // entries a second; 0: no limit
	resume        bool
	replace       bool
	skipBad       bool
	badLines      string // file; empty: none
	timeField     string
	eventTime     *records.TimeField // of timeField; nil: none
	flushInterval time.Duration
	flushEvery    int
	canary        time.Duration // interval; 0: none
	segmentSize   units.Size
	segmentAge    time.Duration
	shards        int // 0: as many as the queue has
	quiet         bool
	publish       string         // URL; empty: do not publish
	store         bucket.Options // of publish
	announce      bool
	bounds        announceBounds
	etcd          string // of publish
	metrics       string // address; empty: none
}

func newAppend(env *cli.Env) *cobra.Command {
	o := appendOptions{segmentSize: queue.DefaultSegmentBytes, parquetMemory: parquet.DefaultMaxBytes}
	command := &cobra.Command{
		Use:   "append --queue DIR [FILE... | --from URL]",
		Short: "Append documents and deletes from NDJSON, CSV, JSON or files",
		Long: `Append reads documents from files, or from standard input ("-", or no FILE),
and appends them to a queue, which it creates if necessary. It decompresses
gzip, zstd, bzip2 and xz. The formats are

  ndjson  each line is a document, unchanged; blank lines are skipped
  json    each element of one array, or each of the objects that follow each
          other, in any number of lines, is a document, unchanged
  csv     each row is a document: an object of strings, named by the first row.
          Rows end with LF or CR LF, or CR if the first one does; a line break
          CR LF within a cell becomes LF
  tsv     the same with tabs
  parquet each row is a document, with typed values; lists and groups are nested
  files   FILE is a directory, and each file below it a document of any content,
          with its relative path as id
  json-files  the same for JSON objects, which may be compressed; the id is the
          path without .json, .json.gz, .json.zst and so on
  auto    csv or tsv by the file's name, parquet if it begins with "PAR1", json
          if it begins with "[", with an object of several lines, or with two
          objects in a line, else ndjson

Text is UTF-8, or UTF-16 if it begins with its byte order mark; --encoding names
another encoding.

A document's id is the top-level field "id" (see --id-field): a string, or an
integer, so that "123" and 123 are the same id. A later document replaces an
earlier one with the same id. Control fields have a special meaning; in tables
they are columns, and an empty cell has no effect:

  {"id": "17", "_delete": true}                            delete the document
  {"id": "17", "_expires": "2030-12-31T23:59:59Z", ...}    serve it until then
  {"id": "17", "_document": {"title": "Cook"}}             the value is the document
  {"id": "17", "_document_base64": "PGh0bWw+"}             these bytes are the document
  {"_id_base64": "/w==", ...}                              these bytes are the id

Documents can be changed on the way: --id and --id-template make the id of other
fields, also nested ones; --keep, --drop and --rename change the fields of the
document, after the id was read; --columns, --header, --delimiter and
--typed-cells concern tables.
For more, pipe the documents through a program such as jq. --dry-run shows the
result.

Flushed documents are on disk and can be read. Unless on a terminal, a flush is
logged every ten seconds, each with --log-level DEBUG, with the number of
documents made durable. Segments are sealed by size, by age, and at the end.

With --follow append keeps reading the last FILE as it grows, until it is
stopped. If another file replaces it, as when logs are rotated, it continues
with that file.

An invalid record stops append, unless --skip-bad, --bad-lines or --follow is
given. With the latter two, append durably writes the record to a file, as a
line of JSON with its place, its text and the problem, and continues. The
default file is bad-lines.ndjson in the queue's directory. At 64 MiB the file
is renamed to FILE.1, replacing an earlier one. After a crash it may contain a
record twice.

With --resume append continues after the last record in the queue: give the
same files in the same order, and new ones after them. However the last run
ended, no record is lost or appended twice. Tables, arrays and compressed files
are read again up to that place; in a directory, files whose paths sort before
it are skipped. A pipe cannot be read again: its writer decides whether records
since the last flush are sent twice or not at all (at least once, if it resends
everything unacknowledged).

With --replace the input is the whole state of the collection: append skips
documents that the queue has, appends those that are new or changed, and deletes
those that the input lacks. It reads the input to its end, then appends and
flushes once, so that readers of the queue, or of the bucket of --publish, see
the change at once. Until then nothing is changed, whatever happens. If more
than --max-deletes percent of the documents would be deleted, append fails: the
input may have been cut short. Invalid records, deletes, and ids that occur
twice are errors. kafka:// and nats:// deliver changes, not a state. --dry-run
prints how many documents it would append, skip and delete. Each shard changes
at once, for readers of --publish all of them.

With --from append reads a source instead of files, and by default continues
after the last record in the queue. Without --follow a source ends behind its
present records. The URL has one of the forms

  ` + strings.Join(sources.Forms(), "\n  ") + `

A file of sources has a list of names and URLs. The names are kept in the
queue, so a source must keep its name; list a source that was removed:

  sources:
    - name: archive
      from: file:///srv/archive/*.ndjson.gz
    - name: new
      from: file:///srv/new/*.csv
      delimiter: ;
      drop: [note]
      rate: 1000
  removed: [old]

An entry can have the options format, id, id-template, keep, drop, rename,
encoding, delimiter, columns, header, typed-cells and rate, which replace the
flags of their names:

    rename: {price: eur}

` + sourcesHelp + `With --shards append creates a queue of so many shards. The shard of a document
is a hash of its id; the number never changes.

With --publish append publishes each segment when it is sealed, as "publish"
does, and then those of all shards. A failing store does not stop it; the exit
status is 1 if the last segment cannot be published. If another updater takes
over, append ends with status 1. With --announce servers serve each document
about a second after it was flushed: append announces flushed documents up to
five times a second, and each segment. If the newest manifest is not announced
or servers are pinned, it only publishes. If the records of the last minute
exceed --max-deletes, --max-bad or --max-rate, it stops announcing until
"announce" is run, and the exit status is 1.

With --canary append also puts a document into each shard at this interval. Each
server measures with it how long a document takes from the source to there:
docstore_canary_seconds of its metrics. A canary expires after a day. Lists,
counts, dumps and --replace leave it out.

SIGINT and SIGTERM stop append after the current document, and everything
before it is flushed. The exit status is then 0 if the input may be endless (a
pipe, or --follow), and 1 if the rest of a file was not read.`,
		Example: `  docstore-updater append --queue /srv/queue/jobs jobs.ndjson.gz
  docstore-updater append --queue /srv/queue/jobs --resume day-*.ndjson
  docstore-updater append --queue /srv/queue/jobs --resume --follow --flush-interval 50ms jobs.log
  docstore-updater append --queue /srv/queue/products --id-field sku products.csv
  docstore-updater append --queue /srv/queue/products --replace products.json.gz
  docstore-updater append --queue /srv/queue/pages --format files /srv/www
  docstore-updater append --queue /srv/queue/jobs --follow --from kafka://k1:9092/jobs`,
		PreRunE: func(command *cobra.Command, _ []string) error {
			if o.from != "" && !command.Flags().Changed("resume") {
				o.resume = true
			}
			if o.announce && !command.Flags().Changed("segment-age") {
				o.segmentAge = announceAge
			}
			if o.replace {
				if err := o.completeReplace(command.Flags()); err != nil {
					return err
				}
			}
			return errors.Join(o.completeBad(command.Flags().Changed("skip-bad")), o.check(), o.completeTransform(command.Flags().Changed("id-field")))
		},
		RunE: func(command *cobra.Command, args []string) error {
			return o.run(command.Context(), env, args)
		},
	}
	addQueueFlag(command, &o.queueDir)
	flags := command.Flags()
	flags.StringVar(&o.from, "from", "", "URL of a source to read instead of files, or a .yaml file of several")
	flags.StringVar(&o.format, "format", string(records.FormatAuto), "format of the input: "+strings.Join(formatNames(), ", "))
	flags.Var(&o.parquetMemory, "parquet-memory", "maximum memory for a row group of a Parquet file")
	flags.BoolVar(&o.follow, "follow", false, "keep reading the last file as it grows or is replaced")
	flags.StringVar(&o.idField, "id-field", "id", "top-level field that holds a document's id")
	o.addTransformFlags(flags)
	flags.BoolVar(&o.dryRun, "dry-run", false, "print the first ten documents as they would be stored, with --replace the number of changes, and change nothing")
	flags.Float64Var(&o.rate, "rate", 0, "maximum number of documents and deletes a second; 0: no limit")
	flags.StringVar(&o.codec, "codec", queue.DefaultCodec, "compression: "+strings.Join(codec.Names(), ", "))
	flags.BoolVar(&o.controlFields, "control-fields", true, `interpret "_delete", "_expires" and so on; false if documents contain such fields`)
	flags.BoolVar(&o.resume, "resume", false, "continue after the last record in the queue; default with --from")
	flags.BoolVar(&o.replace, "replace", false, "make the queue equal to the input: skip equal documents, delete those that it lacks")
	flags.BoolVar(&o.skipBad, "skip-bad", false, "report and skip invalid records, instead of stopping at the first; default with --follow and --bad-lines")
	flags.StringVar(&o.badLines, "bad-lines", "", "file for skipped records; the default with --follow is "+badLinesName+" in the queue's directory")
	flags.DurationVar(&o.flushInterval, "flush-interval", time.Second, "maximum time until a document is flushed; 0: flush only at the end and by --flush-every")
	flags.IntVar(&o.flushEvery, "flush-every", 0, "also flush after this many documents and deletes; 0: no limit")
	flags.DurationVar(&o.canary, "canary", 0, "interval of canaries, documents that measure the time to each server and that lists leave out; 0: none")
	flags.Var(&o.segmentSize, "segment-size", "size at which a segment is sealed")
	flags.DurationVar(&o.segmentAge, "segment-age", 0, "age at which a segment is sealed; 0: no limit")
	flags.IntVar(&o.shards, "shards", 0, fmt.Sprintf("shards of a new queue, a power of two up to %d; default 1", shardset.MaxShards))
	flags.BoolVar(&o.quiet, "quiet", false, "do not show progress, and log only warnings")
	flags.StringVar(&o.publish, "publish", "", "URL to publish sealed segments to: s3://BUCKET/PREFIX or file:///DIRECTORY")
	addS3Flags(command, &o.store)
	flags.BoolVar(&o.announce, "announce", false, "announce flushed documents and the published segments")
	o.bounds.addFlags(flags)
	addEtcdFlag(flags, &o.etcd)
	flags.StringVar(&o.metrics, "metrics", "", "address to serve Prometheus metrics on, such as 127.0.0.1:7072; in plain text, for any client")
	flags.StringVar(&o.timeField, "time-field", "", "field with the time of a document's event, nested with dots: RFC 3339, or Unix seconds or milliseconds; for the age in --metrics")
	groupAppendFlags(command)
	return command
}

// groupAppendFlags groups the flags for the help text, and completes their values.
func groupAppendFlags(command *cobra.Command) {
	cli.Group(command, "Common flags", "queue", "from", "format", "id-field", "resume", "follow", "replace", "dry-run", "skip-bad", "quiet")
	cli.Group(command, "Flags of documents", "id", "id-template", "keep", "drop", "rename", "control-fields")
	cli.Group(command, "Flags of the input", "encoding", "columns", "header", "delimiter", "typed-cells", "parquet-memory", "bad-lines", "rate", "time-field")
	cli.Group(command, "Flags of the queue", "codec", "shards", "flush-interval", "flush-every", "segment-size", "segment-age", "canary")
	cli.Group(command, "Flags of publishing", "publish", "announce", "etcd", "s3-endpoint", "s3-path-style", "max-deletes", "max-bad", "max-rate")
	cli.Values(command, "format", formatNames()...)
	cli.Values(command, "codec", codec.Names()...)
	cli.Values(command, "encoding", encodingNames()...)
}

// announceBounds are the flags of publish.Breaker.
type announceBounds struct{ deletes, bad, rate float64 }

func (b *announceBounds) addFlags(flags *pflag.FlagSet) {
	flags.Float64Var(&b.deletes, "max-deletes", 50, "most deletes; 0: no bound. With --announce in percent of a minute's entries; with --replace in percent of all documents, default 10")
	flags.Float64Var(&b.bad, "max-bad", 10, "with --announce: most invalid records, in percent of a minute's; 0: no bound")
	flags.Float64Var(&b.rate, "max-rate", 0, "with --announce: most entries a minute, as a multiple of the average; 0: no bound")
}

func (b *announceBounds) valid() bool {
	return b.deletes >= 0 && b.deletes <= 100 && b.bad >= 0 && b.bad <= 100 && (b.rate == 0 || b.rate > 1)
}

// formatNames returns the values of --format.
func formatNames() (names []string) {
	for _, format := range files.Formats() {
		names = append(names, string(format))
	}
	return names
}

// completeBad sets the defaults for invalid records; skipGiven says that --skip-bad was
// given.
func (o *appendOptions) completeBad(skipGiven bool) error {
	switch {
	case skipGiven && !o.skipBad && o.badLines != "":
		return cli.Usagef("--bad-lines contradicts --skip-bad=false; give one of them")
	case !skipGiven:
		o.skipBad = o.follow || o.badLines != ""
	}
	if o.skipBad && o.follow && o.badLines == "" {
		o.badLines = filepath.Join(o.queueDir, badLinesName)
	}
	return nil
}

// check reports all invalid flags.
func (o *appendOptions) check() error {
	var problems []error
	refuse := func(wrong bool, format string, args ...any) {
		if wrong {
			problems = append(problems, cli.Usagef(format, args...))
		}
	}
	refuse(o.idField == "", "--id-field is empty; give the name of the field that holds the id")
	refuse(!slices.Contains(formatNames(), o.format), "--format %s: write one of %s", o.format, strings.Join(formatNames(), ", "))
	refuse(!slices.Contains(codec.Names(), o.codec), "--codec %s: this build has %s", o.codec, strings.Join(codec.Names(), ", "))
	refuse(o.from != "" && files.OfDirectories(records.Format(o.format)), "--format %s needs directories, not --from", o.format)
	refuse(o.parquetMemory < parquet.MinMaxBytes, "--parquet-memory %s: must be at least %s", &o.parquetMemory, units.FormatBytes(parquet.MinMaxBytes))
	refuse(!(o.rate >= 0) || o.rate > ingest.MaxRate, "--rate %v: must be from 0 to %v a second", o.rate, ingest.MaxRate)
	refuse(o.flushInterval < 0, "--flush-interval %s: must not be negative", o.flushInterval)
	refuse(o.flushEvery < 0, "--flush-every %d: must not be negative", o.flushEvery)
	refuse(o.canary != 0 && o.canary < minCanary, "--canary %s: must be at least %s", o.canary, minCanary)
	refuse(o.canary != 0 && o.dryRun, "--canary contradicts --dry-run: nothing is appended")
	refuse(o.canary != 0 && o.flushInterval == 0, "--canary needs a --flush-interval above 0: canaries must not wait for other documents")
	refuse(o.segmentAge < 0, "--segment-age %s: must not be negative", o.segmentAge)
	refuse(o.shards < 0 || o.shards > shardset.MaxShards || o.shards&(o.shards-1) != 0, "--shards %d: must be a power of two from 1 to %d", o.shards, shardset.MaxShards)
	if _, _, err := net.SplitHostPort(o.metrics); o.metrics != "" && err != nil {
		refuse(true, "--metrics %s: want HOST:PORT", o.metrics)
	}
	refuse(o.announce && o.publish == "", "--announce needs --publish URL")
	refuse(o.etcd != "" && o.publish == "", "--etcd needs --publish URL")
	refuse(!o.bounds.valid(), "--max-deletes %v, --max-bad %v, --max-rate %v: want 0 to 100 percent, and a rate of 0 or above 1", o.bounds.deletes, o.bounds.bad, o.bounds.rate)
	refuse(o.segmentSize < minSegmentSize || o.segmentSize > queue.MaxSegmentBytes,
		"--segment-size %s: must be between %s and %s", &o.segmentSize, units.FormatBytes(minSegmentSize), units.FormatBytes(queue.MaxSegmentBytes))
	return errors.Join(problems...)
}

func (o *appendOptions) run(ctx context.Context, env *cli.Env, args []string) (err error) {
	if o.quiet {
		env = env.Quiet()
	}
	in, err := o.openInput(ctx, env, args)
	if err != nil {
		return err
	}
	if o.dryRun && !o.replace {
		return o.printDocuments(ctx, env, in)
	}
	if err := requireNoOtherFiles(o.queueDir); err != nil {
		return err
	}
	if o.dryRun {
		return o.countReplaced(ctx, env, in)
	}
	var target *store    // of publish
	if o.publish != "" { // before anything is written
		if target, err = (&bucketFlags{url: o.publish, options: o.store, etcd: o.etcd}).open(ctx, env.Log); err != nil {
			return err
		}
		defer target.Close()
	}
	if o.replace {
		return o.replaceAll(ctx, env, in, target)
	}
	m := newMetrics(o.queueDir)
	if err := m.listen(o.metrics, env.Log); err != nil {
		return err
	}
	defer m.close()
	writer, err := o.openQueue(env, m.observeSync)
	if err != nil {
		return err
	}
	var live *publish.Live // nil: nothing is published
	defer func() {
		if live != nil {
			live.Stop()
		}
		if closeErr := writer.Close(); err == nil {
			err = closeErr
		}
		if live != nil {
			err = errors.Join(err, live.Finish(ctx))
		}
	}()
	to, stored := &ingest.CatchUp{Writer: writer}, []byte(nil)
	if o.resume {
		warnOfPipes(env, in)
		if stored, err = to.Resume(in.Opener); err != nil {
			return err
		}
	}
	from, err := openSource(ctx, env, in, stored)
	if err != nil {
		return err
	}
	defer func() { _ = from.Close() }() // it was only read
	var shown *meter.Meter              // nil with --quiet
	if !o.quiet {
		shown = meter.New(env, "appending", totalBytes(from))
	}
	appender := ingest.NewAppender(from, in.Opener.Ends(), to, o.appenderOptions(env, in, from, m, shown))
	if target != nil {
		if live, err = publish.NewLive(ctx, target, o.queueDir, o.liveOptions(env, target, writer.Seal, appender.Progress)); err != nil {
			return err
		}
		var stop context.CancelFunc
		ctx, stop = context.WithCancel(ctx)
		defer stop()
		live.Start(ctx, stop)
	}
	m.serve(&appendCollector{appender, from, writer, live, o.announce})
	defer warnOfFields(env, in)
	started := env.Now()
	err = appender.Run(ctx)
	shown.Finish()
	if errors.Is(err, ingest.ErrWriter) {
		return err
	}
	o.report(env, appender.Progress(), env.Now().Sub(started))
	return o.explain(err, in, appender.Progress())
}

// liveOptions returns the options of publishing.
func (o *appendOptions) liveOptions(env *cli.Env, target *store, seal func() error, progress func() ingest.Progress) publish.LiveOptions {
	return publish.LiveOptions{
		URL: o.publish, Announce: o.announce, Seal: seal, Logger: env.Log, Now: env.Now, Problem: target.contact.Problem,
		Breaker: publish.Breaker{MaxDeletes: o.bounds.deletes / 100, MaxBad: o.bounds.bad / 100, MaxRate: o.bounds.rate},
		Counts: func() publish.Counts {
			at := progress()
			return publish.Counts{Documents: at.Documents, Deletes: at.Deletes, Bad: at.Invalid}
		},
	}
}

// appenderOptions returns the options of the Appender.
func (o *appendOptions) appenderOptions(env *cli.Env, in *sources.Input, from ingest.Source, m *metrics, shown *meter.Meter) ingest.Options {
	flushes := &flushLog{env: env, from: from}
	options := ingest.Options{
		Queue: o.queueDir, Parsing: in.Parsing, Rate: o.rate, FlushInterval: o.flushInterval, FlushEvery: o.flushEvery, CanaryInterval: o.canary,
		SkipInvalid: o.skipBad, Logger: env.Log, Now: env.Now,
		Appended: func(at ingest.Progress) { shown.Update(at.Entries(), at.Bytes) },
		Flushed: func(at ingest.Progress, took time.Duration) {
			m.flush.Observe(took.Seconds())
			if !at.Oldest.IsZero() {
				m.age.Observe(max(0, env.Now().Sub(at.Oldest).Seconds()))
			}
			flushes.flushed(at)
		},
	}
	if o.eventTime != nil {
		options.EventTime = o.eventTime.Of
	}
	if o.badLines != "" {
		options.DeadLetters = ingest.NewDeadLetters(vfs.OS, o.badLines)
	}
	return options
}

// flushLogInterval is the time between two flushes that are logged at the level INFO.
const flushLogInterval = 10 * time.Second

// flushLog logs what became durable: each flush at the level DEBUG, and one of them every
// flushLogInterval at INFO, unless a progress bar shows it.
type flushLog struct {
	env    *cli.Env
	from   ingest.Source
	logged atomic.Int64 // when one was last logged at INFO, in nanoseconds since 1970
}

func (l *flushLog) flushed(at ingest.Progress) {
	level, now, last := slog.LevelDebug, l.env.Now().UnixNano(), l.logged.Load()
	if !l.env.Terminal && now-last >= int64(flushLogInterval) && l.logged.CompareAndSwap(last, now) {
		level = slog.LevelInfo
	}
	lag, unit := l.from.Lag()
	waiting := slog.Attr{} // omitted
	if unit != "" {
		waiting = slog.Int64("waiting_"+unit, lag)
	}
	l.env.Log.Log(context.Background(), level, "flushed",
		"documents", at.Documents, "deletes", at.Deletes, "bad_records", at.Invalid, "at", at.Place, waiting)
}

// explain adds advice to an error of the Appender. An interrupted run is an error if the rest of
// a source that ends was not read.
func (o *appendOptions) explain(err error, in *sources.Input, at ingest.Progress) error {
	switch {
	case errors.Is(err, ingest.ErrInvalid):
		return cli.Bare(fmt.Errorf("%w; correct it, or skip invalid records with --skip-bad", err))
	case errors.Is(err, ingest.ErrDeadLetters):
		return fmt.Errorf("%w; free space, or choose another file with --bad-lines", err)
	case !errors.Is(err, ingest.ErrInterrupted):
		return err
	case !at.Ends:
		return nil
	case at.Place == "":
		return fmt.Errorf("interrupted before %s was read", in.Name)
	}
	return fmt.Errorf("interrupted after %s; the queue holds everything up to there; continue with --resume", at.Place)
}

// report logs a summary of the run.
func (o *appendOptions) report(env *cli.Env, done ingest.Progress, elapsed time.Duration) {
	if done.Invalid > 0 {
		attributes := []any{"records", done.Invalid}
		if o.badLines != "" {
			attributes = append(attributes, "kept_in", o.badLines)
		}
		env.Log.Warn("invalid records were skipped", attributes...)
	}
	perSecond := int64(0)
	if elapsed > 0 {
		perSecond = int64(float64(done.Entries()) / elapsed.Seconds())
	}
	env.Log.Info("appended", "documents", done.Documents, "deletes", done.Deletes, "bad_records", done.Invalid, "bytes", done.Bytes,
		"seconds", elapsed.Round(time.Millisecond).Seconds(), "documents_per_second", perSecond)
}
