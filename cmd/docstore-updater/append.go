package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"docstore/cmd/internal/cli"
	"docstore/cmd/internal/records"
	"docstore/internal/vfs"
	"docstore/queue"
	"docstore/queue/bucket"
)

// minSegmentSize is the minimum of --segment-size. Every segment is a file that is listed,
// copied and mapped: a queue of 1 GiB has 32,768 of this size.
const minSegmentSize = 32 << 10

// appendOptions holds the flags of append.
type appendOptions struct {
	queueDir      string
	format        string
	follow        bool
	idField       string
	codec         string
	controlFields bool
	resume        bool
	skipBad       bool
	badLines      string // file; empty: none
	flushInterval time.Duration
	flushEvery    int
	segmentSize   cli.Size
	segmentAge    time.Duration
	quiet         bool
	publish       string         // URL; empty: do not publish
	store         bucket.Options // of publish
	announce      bool
	bounds        announceBounds
	etcd          string // of publish

	fs vfs.FS // of the queue and the file of bad records
}

func newAppend(env *cli.Env) *cobra.Command {
	o := appendOptions{segmentSize: queue.DefaultSegmentBytes, fs: vfs.OS}
	command := &cobra.Command{
		Use:   "append --queue DIR [FILE...]",
		Short: "Append documents and deletes from NDJSON, CSV, JSON or files",
		Long: `Append reads documents from files, or from standard input ("-", or no FILE),
and appends them to a queue, which it creates if necessary. It decompresses
gzip, zstd and bzip2. The formats are

  ndjson  each line is a document, unchanged; blank lines are skipped
  json    each element of one array is a document, unchanged
  csv     each row is a document: an object of strings, named by the first row
  tsv     the same with tabs
  files   FILE is a directory, and each file below it a document of any content,
          with its relative path as id
  auto    csv or tsv by the file's name, json if it begins with "[", else ndjson

A document's id is the top-level field "id" (see --id-field): a string, or an
integer, so that "123" and 123 are the same id. A later document replaces an
earlier one with the same id. Control fields have a special meaning; in tables
they are columns, and an empty cell has no effect:

  {"id": "17", "_delete": true}                            delete the document
  {"id": "17", "_expires": "2030-12-31T23:59:59Z", ...}    serve it until then
  {"id": "17", "_document_base64": "PGh0bWw+"}             these bytes are the document
  {"_id_base64": "/w==", ...}                              these bytes are the id

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

With --publish append publishes each segment when it is sealed, as "publish"
does. A failing store does not stop it; the exit status is 1 if the last
segment cannot be published. With --announce servers serve each document about
a second after it was flushed: append announces flushed documents up to five
times a second, and each segment. If the newest manifest is not announced or
servers are pinned, it only publishes. If the records of the last minute exceed
--max-deletes, --max-bad or --max-rate, it stops announcing until "announce"
is run, and the exit status is 1.

SIGINT and SIGTERM stop append after the current document, and everything
before it is flushed. The exit status is then 0 if the input may be endless (a
pipe, or --follow), and 1 if the rest of a file was not read.`,
		Example: `  docstore-updater append --queue /srv/queue/jobs jobs.ndjson.gz
  docstore-updater append --queue /srv/queue/jobs --resume day-*.ndjson
  docstore-updater append --queue /srv/queue/jobs --resume --follow --flush-interval 50ms jobs.log
  docstore-updater append --queue /srv/queue/products --id-field sku products.csv
  docstore-updater append --queue /srv/queue/pages --format files /srv/www`,
		PreRunE: func(command *cobra.Command, _ []string) error {
			if o.announce && !command.Flags().Changed("segment-age") {
				o.segmentAge = announceAge
			}
			return errors.Join(o.completeBad(command.Flags().Changed("skip-bad")), o.check())
		},
		RunE: func(command *cobra.Command, args []string) error {
			return o.run(command.Context(), env, args)
		},
	}
	addQueueFlag(command, &o.queueDir)
	flags := command.Flags()
	flags.StringVar(&o.format, "format", string(records.FormatAuto), "format of the input: "+strings.Join(formatNames(), ", "))
	flags.BoolVar(&o.follow, "follow", false, "keep reading the last file as it grows or is replaced")
	flags.StringVar(&o.idField, "id-field", "id", "top-level field that holds a document's id")
	flags.StringVar(&o.codec, "codec", queue.DefaultCodec, "compression: "+strings.Join(queue.Codecs(), ", "))
	flags.BoolVar(&o.controlFields, "control-fields", true, `interpret "_delete", "_expires" and so on; false if documents contain such fields`)
	flags.BoolVar(&o.resume, "resume", false, "continue after the last record in the queue")
	flags.BoolVar(&o.skipBad, "skip-bad", false, "report and skip invalid records, instead of stopping at the first; default with --follow and --bad-lines")
	flags.StringVar(&o.badLines, "bad-lines", "", "file for skipped records; the default with --follow is "+badLinesName+" in the queue's directory")
	flags.DurationVar(&o.flushInterval, "flush-interval", time.Second, "maximum time until a document is flushed; 0: flush only at the end and by --flush-every")
	flags.IntVar(&o.flushEvery, "flush-every", 0, "also flush after this many documents and deletes; 0: no limit")
	flags.Var(&o.segmentSize, "segment-size", "size at which a segment is sealed")
	flags.DurationVar(&o.segmentAge, "segment-age", 0, "age at which a segment is sealed; 0: no limit")
	flags.BoolVar(&o.quiet, "quiet", false, "do not show progress, and log only warnings")
	flags.StringVar(&o.publish, "publish", "", "URL to publish sealed segments to: s3://BUCKET/PREFIX or file:///DIRECTORY")
	addS3Flags(command, &o.store)
	flags.BoolVar(&o.announce, "announce", false, "announce flushed documents and the published segments")
	o.bounds.addFlags(flags)
	addEtcdFlag(flags, &o.etcd)
	return command
}

// formatNames returns the values of --format.
func formatNames() (names []string) {
	for _, format := range append(records.Formats(), formatFiles) {
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
	refuse(!slices.Contains(queue.Codecs(), o.codec), "--codec %s: this build has %s", o.codec, strings.Join(queue.Codecs(), ", "))
	refuse(o.flushInterval < 0, "--flush-interval %s: must not be negative", o.flushInterval)
	refuse(o.flushEvery < 0, "--flush-every %d: must not be negative", o.flushEvery)
	refuse(o.segmentAge < 0, "--segment-age %s: must not be negative", o.segmentAge)
	refuse(o.announce && o.publish == "", "--announce needs --publish URL")
	refuse(!o.bounds.valid(), "--max-deletes %v, --max-bad %v, --max-rate %v: want 0 to 100 percent, and a rate of 0 or above 1", o.bounds.deletes, o.bounds.bad, o.bounds.rate)
	refuse(o.segmentSize < minSegmentSize || o.segmentSize > queue.MaxSegmentBytes,
		"--segment-size %s: must be between %s and %s", &o.segmentSize, cli.FormatBytes(minSegmentSize), cli.FormatBytes(queue.MaxSegmentBytes))
	return errors.Join(problems...)
}

func (o *appendOptions) run(ctx context.Context, env *cli.Env, args []string) (err error) {
	inputs, err := listInputs(args, records.Format(o.format), o.follow)
	if err != nil {
		return err
	}
	if o.quiet {
		env = env.Quiet()
	}
	if err := requireNoOtherFiles(o.fs, o.queueDir); err != nil {
		return err
	}
	writer, err := queue.OpenWriter(o.queueDir, &queue.WriterOptions{
		FS:           o.fs,
		Codec:        o.codec,
		SegmentBytes: int64(o.segmentSize),
		SegmentAge:   o.segmentAge,
		Logger:       env.Log,
	})
	if err != nil {
		return cannotOpen(o.queueDir, err)
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
	if o.resume {
		if inputs, err = o.skipRead(env, inputs, writer.Cursor()); err != nil {
			return err
		}
	}
	a := &appender{options: o, env: env, writer: writer, started: env.Now()}
	if o.badLines != "" {
		a.badLines = &badLines{fsys: o.fs, path: o.badLines, maxBytes: maxBadLinesBytes}
	}
	if o.publish != "" {
		if publishing, err = a.newPublishing(ctx); err != nil {
			return err
		}
		publishing.start(ctx)
	}
	if !o.quiet {
		a.meter = cli.NewMeter(env, "appending", totalBytes(inputs))
	}
	return a.run(ctx, inputs)
}

// skipRead drops from the inputs the records that the queue already holds.
func (o *appendOptions) skipRead(env *cli.Env, inputs []*input, stored []byte) ([]*input, error) {
	for _, in := range inputs {
		if !in.stable {
			env.Log.Warn("a pipe cannot be resumed: after a crash its writer must resend unflushed records, "+
				"and some may be appended twice", "input", in.name)
		}
	}
	if len(stored) == 0 {
		return inputs, nil
	}
	at, err := parseCursor(stored)
	if err != nil {
		return nil, err
	}
	rest, err := resume(inputs, at)
	if err == nil {
		env.Log.Info("resuming", "behind", at.describe(), "line", at.Lines, "inputs_left", len(rest))
	}
	return rest, err
}

// appender moves items from the inputs into the queue. Only one goroutine uses it, except
// for progress.
type appender struct {
	options *appendOptions
	env     *cli.Env
	writer  *queue.Writer
	meter   *cli.Meter // nil with --quiet
	started time.Time

	badLines *badLines // nil: invalid records are not kept

	progress  progress
	reached   reached // ahead of what progress knows, within a batch
	bytes     int64   // of the input
	unflushed int     // documents and deletes since the last flush by --flush-every
	broken    bool    // the writer has failed and must not be used
	encoded   []byte  // the cursor, for the writer
}

// run appends all inputs. In any case it flushes everything appended.
func (a *appender) run(ctx context.Context, inputs []*input) error {
	p := newProducer(a.env.Stdin, &records.Options{
		IDField:     a.options.idField,
		PlainFields: !a.options.controlFields,
		MaxIDBytes:  queue.MaxIDBytes,
	})
	stop := p.start(ctx, inputs)
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
		err = a.interrupted(inputs[0])
	}
	a.report()
	return err
}

// errInterrupted: the context ended before the input.
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
				return nil
			}
			<-b.parsed // soon: parsers do not block
			if err := a.appendBatch(ctx, b); err != nil {
				return err
			}
			p.recycle(b)
		}
	}
}

func (a *appender) appendBatch(ctx context.Context, b *batch) error {
	defer func() { a.progress.publish(a.reached) }()
	if err := a.keepBad(b); err != nil {
		return err
	}
	before := a.bytes - b.start
	for i := range b.items {
		if ctx.Err() != nil {
			return errInterrupted
		}
		if err := a.appendItem(b.in, &b.items[i]); err != nil {
			return err
		}
		a.bytes = before + b.items[i].at.Offset
	}
	a.meter.Update(a.reached.entries(), a.bytes)
	return b.err
}

func (a *appender) appendItem(in *input, it *item) error {
	if it.problem != nil {
		return a.bad(in, it)
	}
	record := queue.Record{ID: it.entry.ID, Document: it.entry.Document, Expires: it.entry.Expires, Delete: it.entry.Delete}
	if in.stable {
		a.encoded = it.at.append(a.encoded[:0])
		record.Cursor = a.encoded
	}
	if _, err := a.writer.Put(record); err != nil {
		a.broken = true
		return fmt.Errorf("appending %s to %s: %w", in.place(it.at), a.options.queueDir, err)
	}
	a.reached.note(in, it)
	a.unflushed++
	if every := a.options.flushEvery; every > 0 && a.unflushed >= every {
		return a.flush()
	}
	return nil
}

// bad skips an invalid record, or returns the error that stops append.
func (a *appender) bad(in *input, it *item) error {
	if !a.options.skipBad {
		return cli.Bare(fmt.Errorf("%s: %w; correct it, or skip invalid records with --skip-bad", in.place(it.at), it.problem))
	}
	a.reached.bad++
	if a.badLines == nil {
		a.env.Log.Warn("skipped an invalid record", "at", in.place(it.at), "problem", it.problem.Error())
	}
	return nil
}

// flush calls flushDurably in the goroutine that appends.
func (a *appender) flush() error {
	a.unflushed = 0
	a.progress.publish(a.reached)
	err := a.flushDurably()
	a.broken = err != nil
	return err
}

// interrupted returns the result of an interrupted run: an error if the rest of a file was
// not read, nil for a pipe or a followed file.
func (a *appender) interrupted(first *input) error {
	at := a.progress.now()
	switch {
	case at.in == nil && first.live(), at.in != nil && at.in.live():
		return nil
	case at.in == nil:
		return fmt.Errorf("interrupted before %s was read", first.name)
	}
	return fmt.Errorf("interrupted after %s; the queue holds everything up to there; continue with --resume", at.in.place(at.behind))
}

// report logs a summary of the run.
func (a *appender) report() {
	if bad := a.reached.bad; bad > 0 {
		a.env.Log.Warn("invalid records were skipped", "records", bad, "kept_in", a.options.badLines)
	}
	elapsed := a.env.Now().Sub(a.started)
	perSecond := int64(0)
	if elapsed > 0 {
		perSecond = int64(float64(a.progress.entries()) / elapsed.Seconds())
	}
	done := a.progress.now()
	a.env.Log.Info("appended", "documents", done.documents, "deletes", done.deletes, "bad_records", a.reached.bad, "bytes", a.bytes,
		"seconds", elapsed.Round(time.Millisecond).Seconds(), "documents_per_second", perSecond)
}
