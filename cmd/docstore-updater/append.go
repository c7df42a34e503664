package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"docstore/cmd/internal/cli"
	"docstore/cmd/internal/meter"
	"docstore/ingest"
	"docstore/ingest/files"
	"docstore/ingest/parquet"
	"docstore/ingest/records"
	"docstore/internal/units"
	"docstore/internal/vfs"
	"docstore/queue"
	"docstore/queue/bucket"
	"docstore/queue/codec"
	"docstore/queue/shardset"
)

// minSegmentSize is the minimum of --segment-size. Every segment is a file that is listed,
// copied and mapped: a queue of 1 GiB has 32,768 of this size.
const minSegmentSize = 32 << 10

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
	transform     transformation
	dryRun        bool
	rate          float64 // entries a second; 0: no limit
	resume        bool
	skipBad       bool
	badLines      string // file; empty: none
	flushInterval time.Duration
	flushEvery    int
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

	fs vfs.FS // of the queue and the file of bad records
}

func newAppend(env *cli.Env) *cobra.Command {
	o := appendOptions{segmentSize: queue.DefaultSegmentBytes, parquetMemory: parquet.DefaultMaxBytes, fs: vfs.OS}
	command := &cobra.Command{
		Use:   "append --queue DIR [FILE... | --from URL]",
		Short: "Append documents and deletes from NDJSON, CSV, JSON or files",
		Long: `Append reads documents from files, or from standard input ("-", or no FILE),
and appends them to a queue, which it creates if necessary. It decompresses
gzip, zstd, bzip2 and xz. The formats are

  ndjson  each line is a document, unchanged; blank lines are skipped
  json    each element of one array is a document, unchanged
  csv     each row is a document: an object of strings, named by the first row.
          Rows end with LF or CR LF, or CR if the first one does; a line break
          CR LF within a cell becomes LF
  tsv     the same with tabs
  parquet each row is a document, with typed values; lists and groups are nested
  files   FILE is a directory, and each file below it a document of any content,
          with its relative path as id
  auto    csv or tsv by the file's name, parquet if it begins with "PAR1", json
          if it begins with "[", else ndjson

A document's id is the top-level field "id" (see --id-field): a string, or an
integer, so that "123" and 123 are the same id. A later document replaces an
earlier one with the same id. Control fields have a special meaning; in tables
they are columns, and an empty cell has no effect:

  {"id": "17", "_delete": true}                            delete the document
  {"id": "17", "_expires": "2030-12-31T23:59:59Z", ...}    serve it until then
  {"id": "17", "_document_base64": "PGh0bWw+"}             these bytes are the document
  {"_id_base64": "/w==", ...}                              these bytes are the id

Documents can be changed on the way: --id and --id-template make the id of other
fields, also nested ones; --keep, --drop and --rename change the fields of the
document, after the id was read; --delimiter and --typed-cells concern tables.
For more, pipe the documents through a program such as jq. --dry-run shows the
result.

Flushed documents are on disk and can be read. Unless on a terminal, each flush
is logged with the number of documents made durable. Segments are sealed by
size, by age, and at the end.

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

With --from append reads a source instead of files, and by default continues
after the last record in the queue. Without --follow a source ends behind its
present records. The URL has one of the forms

  ` + strings.Join(schemeURLs(), "\n  ") + `

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
delimiter, typed-cells and rate, which replace the flags of their names:

    rename: {price: eur}

` + schemeHelps() + `With --shards append creates a queue of so many shards. The shard of a document
is a hash of its id; the number never changes.

With --publish append publishes each segment when it is sealed, as "publish"
does, and then those of all shards. A failing store does not stop it; the exit
status is 1 if the last segment cannot be published. With --announce servers
serve each document about a second after it was flushed: append announces
flushed documents up to five times a second, and each segment. If the newest
manifest is not announced or servers are pinned, it only publishes. If the
records of the last minute exceed --max-deletes, --max-bad or --max-rate, it
stops announcing until "announce" is run, and the exit status is 1.

SIGINT and SIGTERM stop append after the current document, and everything
before it is flushed. The exit status is then 0 if the input may be endless (a
pipe, or --follow), and 1 if the rest of a file was not read.`,
		Example: `  docstore-updater append --queue /srv/queue/jobs jobs.ndjson.gz
  docstore-updater append --queue /srv/queue/jobs --resume day-*.ndjson
  docstore-updater append --queue /srv/queue/jobs --resume --follow --flush-interval 50ms jobs.log
  docstore-updater append --queue /srv/queue/products --id-field sku products.csv
  docstore-updater append --queue /srv/queue/pages --format files /srv/www
  docstore-updater append --queue /srv/queue/jobs --follow --from kafka://k1:9092/jobs`,
		PreRunE: func(command *cobra.Command, _ []string) error {
			if o.from != "" && !command.Flags().Changed("resume") {
				o.resume = true
			}
			if o.announce && !command.Flags().Changed("segment-age") {
				o.segmentAge = announceAge
			}
			return errors.Join(o.completeBad(command.Flags().Changed("skip-bad")), o.check(), o.transform.check("--", command.Flags().Changed("id-field"), o.format))
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
	o.transform.addFlags(flags)
	flags.BoolVar(&o.dryRun, "dry-run", false, "print the first ten documents as they would be stored, and change nothing")
	flags.Float64Var(&o.rate, "rate", 0, "maximum number of documents and deletes a second; 0: no limit")
	flags.StringVar(&o.codec, "codec", queue.DefaultCodec, "compression: "+strings.Join(codec.Names(), ", "))
	flags.BoolVar(&o.controlFields, "control-fields", true, `interpret "_delete", "_expires" and so on; false if documents contain such fields`)
	flags.BoolVar(&o.resume, "resume", false, "continue after the last record in the queue; default with --from")
	flags.BoolVar(&o.skipBad, "skip-bad", false, "report and skip invalid records, instead of stopping at the first; default with --follow and --bad-lines")
	flags.StringVar(&o.badLines, "bad-lines", "", "file for skipped records; the default with --follow is "+badLinesName+" in the queue's directory")
	flags.DurationVar(&o.flushInterval, "flush-interval", time.Second, "maximum time until a document is flushed; 0: flush only at the end and by --flush-every")
	flags.IntVar(&o.flushEvery, "flush-every", 0, "also flush after this many documents and deletes; 0: no limit")
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
	return command
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
	refuse(o.from != "" && o.format == string(files.Directories), "--format %s needs directories, not --from", files.Directories)
	refuse(o.parquetMemory < parquet.MinMaxBytes, "--parquet-memory %s: must be at least %s", &o.parquetMemory, units.FormatBytes(parquet.MinMaxBytes))
	refuse(!(o.rate >= 0) || o.rate > maxRate, "--rate %v: must be from 0 to %v a second", o.rate, maxRate)
	refuse(o.flushInterval < 0, "--flush-interval %s: must not be negative", o.flushInterval)
	refuse(o.flushEvery < 0, "--flush-every %d: must not be negative", o.flushEvery)
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
	if o.dryRun {
		return o.printDocuments(ctx, env, in)
	}
	if err := requireNoOtherFiles(o.fs, o.queueDir); err != nil {
		return err
	}
	var target *store    // of publish
	if o.publish != "" { // before anything is written
		if target, err = (&bucketFlags{url: o.publish, options: o.store, etcd: o.etcd}).open(ctx); err != nil {
			return err
		}
		defer target.Close()
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
	var publishing *publishing
	defer func() {
		if publishing != nil {
			publishing.stop()
		}
		if closeErr := writer.Close(); err == nil {
			err = closeErr
		}
		if publishing != nil {
			err = errors.Join(err, publishing.finish(ctx))
		}
	}()
	var stored []byte
	if o.resume {
		in.warnOfPipes(env)
		if stored, err = writer.resume(in.opener); err != nil {
			return err
		}
	}
	from, err := in.open(ctx, env, stored)
	if err != nil {
		return err
	}
	defer func() { _ = from.Close() }() // it was only read
	a := &appender{options: o, env: env, source: from, name: in.name, parsing: in.parsing, writer: writer, metrics: m, started: env.Now()}
	a.reached.ends = in.ends
	if o.rate > 0 {
		a.pace = &pace{interval: time.Duration(float64(time.Second) / o.rate)}
	}
	if o.badLines != "" {
		a.badLines = &badLines{fsys: o.fs, path: o.badLines, maxBytes: maxBadLinesBytes}
	}
	if target != nil {
		if publishing, err = a.newPublishing(ctx, target); err != nil {
			return err
		}
		publishing.start(ctx)
	}
	m.serve(&appendCollector{a, publishing})
	if !o.quiet {
		a.meter = meter.New(env, "appending", totalBytes(from))
	}
	defer in.warnOfFields(env)
	return a.run(ctx)
}

// appender moves records from the source into the queue. Only one goroutine uses it, except
// for progress.
type appender struct {
	options *appendOptions
	env     *cli.Env
	source  ingest.Source
	name    string // of the source
	parsing []parsing
	writer  destination
	metrics *metrics
	meter   *meter.Meter // nil with --quiet
	started time.Time

	badLines *badLines // nil: invalid records are not kept

	progress  progress
	reached   reached // ahead of what progress knows, within a batch
	unflushed int     // documents and deletes since the last flush by --flush-every
	broken    bool    // the writer has failed and must not be used
	encoded   []byte  // the cursor, for the writer
	pace      *pace   // nil: no limit
}

// run appends all records. In any case it flushes everything appended.
func (a *appender) run(ctx context.Context) error {
	a.progress.publish(a.reached)
	p := newProducer(a.source, a.parsing)
	stop := p.start(ctx)
	defer stop()

	flushing := a.startFlushing()
	err := a.consume(ctx, p, flushing.failed)
	flushing.stop()
	a.meter.Finish()
	if a.broken {
		return err
	}
	if flushErr := a.flush(); flushErr != nil {
		return flushErr
	}
	if errors.Is(err, errInterrupted) {
		err = a.interrupted()
	}
	a.report()
	return err
}

// errInterrupted: the context ended before the source.
var errInterrupted = errors.New("interrupted")

// consume appends what the producer sends until it ends, ctx does, or a flush
// fails.
func (a *appender) consume(ctx context.Context, p *producer, flushFailed <-chan error) error {
	for {
		select {
		case <-ctx.Done():
			return errInterrupted
		case err := <-flushFailed:
			a.broken = true
			return err
		case b, more := <-p.filled:
			if !more && !p.complete {
				return errInterrupted
			}
			if !more {
				a.writer.inputEnded()
				return nil
			}
			if b.err != nil {
				return b.err
			}
			<-b.parsed // soon: parsers do not block
			if err := a.appendBatch(ctx, b); err != nil {
				return err
			}
			if b.Release != nil {
				b.Release()
			}
		}
	}
}

func (a *appender) appendBatch(ctx context.Context, b *batch) error {
	if err := a.keepBad(b); err != nil {
		return err
	}
	a.reached.ends = b.Ends
	last := -1
	defer func() { a.reach(b, last) }()
	for i := range b.Records {
		if ctx.Err() != nil {
			return errInterrupted
		}
		if a.pace != nil && !a.pace.wait(ctx, a.env.Now()) {
			return errInterrupted
		}
		if err := a.appendRecord(b, i); err != nil {
			return err
		}
		if b.Records[i].Problem == nil {
			last = i
		}
	}
	a.reached.bytes += b.Bytes
	a.meter.Update(a.reached.entries(), a.reached.bytes)
	return nil
}

func (a *appender) appendRecord(b *batch, i int) error {
	r := &b.Records[i]
	if r.Problem != nil {
		return a.bad(b, i)
	}
	if a.writer.has(b.Batch, i) {
		return nil
	}
	record := queue.Record{ID: r.ID, Document: r.Document, Expires: r.Expires, Delete: r.Delete}
	if a.encoded = b.AppendCursor(a.encoded[:0], i); len(a.encoded) > 0 {
		record.Cursor = a.encoded
	}
	if err := a.writer.put(record); err != nil {
		a.broken = true
		return fmt.Errorf("appending %s to %s: %w", b.Place(i), a.options.queueDir, err)
	}
	a.reached.count(r)
	a.unflushed++
	if every := a.options.flushEvery; every > 0 && a.unflushed >= every {
		a.reach(b, i)
		return a.flush()
	}
	return nil
}

// reach publishes the progress up to an entry of a batch; -1: the batch before.
func (a *appender) reach(b *batch, i int) {
	if i >= 0 {
		a.reached.place, a.reached.cursor = b.Place(i), b.AppendCursor(nil, i)
	}
	a.progress.publish(a.reached)
}

// bad skips an invalid record, or returns the error that stops append.
func (a *appender) bad(b *batch, i int) error {
	problem := b.Records[i].Problem
	if !a.options.skipBad {
		return cli.Bare(fmt.Errorf("%s: %w; correct it, or skip invalid records with --skip-bad", b.Place(i), problem))
	}
	a.reached.bad++
	if a.badLines == nil {
		a.env.Log.Warn("skipped an invalid record", "at", b.Place(i), "problem", problem.Error())
	}
	return nil
}

// flush calls flushDurably in the goroutine that appends.
func (a *appender) flush() error {
	a.unflushed = 0
	err := a.flushDurably()
	a.broken = err != nil
	return err
}

// interrupted returns the result of an interrupted run: an error if the rest of a source that
// ends was not read.
func (a *appender) interrupted() error {
	switch at := a.progress.now(); {
	case !at.ends:
		return nil
	case at.place == "":
		return fmt.Errorf("interrupted before %s was read", a.name)
	default:
		return fmt.Errorf("interrupted after %s; the queue holds everything up to there; continue with --resume", at.place)
	}
}

// report logs a summary of the run.
func (a *appender) report() {
	done := a.progress.now()
	if done.bad > 0 {
		attributes := []any{"records", done.bad}
		if a.options.badLines != "" {
			attributes = append(attributes, "kept_in", a.options.badLines)
		}
		a.env.Log.Warn("invalid records were skipped", attributes...)
	}
	elapsed := a.env.Now().Sub(a.started)
	perSecond := int64(0)
	if elapsed > 0 {
		perSecond = int64(float64(done.entries()) / elapsed.Seconds())
	}
	a.env.Log.Info("appended", "documents", done.documents, "deletes", done.deletes, "bad_records", done.bad, "bytes", done.bytes,
		"seconds", elapsed.Round(time.Millisecond).Seconds(), "documents_per_second", perSecond)
}
