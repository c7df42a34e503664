package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"docstore/internal/cli"
	"docstore/internal/ndjson"
	"docstore/queue"
)

// appendOptions are the flags of append.
type appendOptions struct {
	queueDir      string
	idField       string
	codec         string
	controlFields bool
	resume        bool
	skipBad       bool
	flushInterval time.Duration
	flushEvery    int
	segmentSize   cli.Size
	segmentAge    time.Duration
	quiet         bool
}

func newAppend(env *cli.Env) *cobra.Command {
	o := appendOptions{segmentSize: queue.DefaultSegmentBytes}
	command := &cobra.Command{
		Use:   "append --queue DIR [FILE...]",
		Short: "Append documents, deletes and expiries from NDJSON",
		Long: `Append reads lines of JSON from files, or from standard input ("-", or no FILE),
and appends them to a queue, which is made if need be.

A document is the bytes of its line without the newline, unchanged; blank lines
are passed over. Its id is the top-level field "id" (see --id-field): a string,
or an integer, so that "123" and 123 are one id. A later document of an id takes
the place of the earlier one. Two fields ask for something else:

  {"id": "17", "_delete": true}                            the document goes
  {"id": "17", "_expires": "2030-12-31T23:59:59Z", ...}    it is served until then

What a flush has covered is on disk and can be read. Elsewhere than on a terminal
each flush is logged with the number of documents that it makes durable. Segments
are sealed by size, by age, and in the end.

With --resume, append goes on behind the last line that the queue holds: give the
same files in the same order, and new ones behind them. Nothing is lost and
nothing is appended twice, however the last run ended. A pipe cannot be read
again: what it brought since the last flush may be sent twice, or not at all, as
its writer decides (at least once, if it sends everything unacknowledged again).

SIGINT and SIGTERM end append after the current document, with everything before
it flushed. The exit status is then 0 if the input is a pipe, which may never
end, and 1 if the rest of a file was not read.`,
		Example: `  docstore-updater append --queue /srv/queue/jobs jobs.ndjson
  docstore-updater append --queue /srv/queue/jobs --resume day-*.ndjson
  zcat jobs.ndjson.gz | docstore-updater append --queue /srv/queue/jobs --skip-bad`,
		RunE: func(command *cobra.Command, args []string) error {
			return o.run(command.Context(), env, args)
		},
	}
	addQueueFlag(command, &o.queueDir)
	flags := command.Flags()
	flags.StringVar(&o.idField, "id-field", "id", "top-level field that holds a document's id")
	flags.StringVar(&o.codec, "codec", queue.DefaultCodec, "compression: "+strings.Join(queue.Codecs(), ", "))
	flags.BoolVar(&o.controlFields, "control-fields", true, `let "_delete" and "_expires" mean something; false where documents really have such fields`)
	flags.BoolVar(&o.resume, "resume", false, "go on behind the last line that the queue holds")
	flags.BoolVar(&o.skipBad, "skip-bad", false, "report and pass over lines that are no documents, instead of stopping at the first")
	flags.DurationVar(&o.flushInterval, "flush-interval", time.Second, "longest that a document waits to be flushed; 0 flushes only at the end and by --flush-every")
	flags.IntVar(&o.flushEvery, "flush-every", 0, "flush after so many documents and deletes, too; 0 does not count")
	flags.Var(&o.segmentSize, "segment-size", "size at which a segment is sealed and the next begins")
	flags.DurationVar(&o.segmentAge, "segment-age", 0, "age at which a segment is sealed, too; 0 is no limit")
	flags.BoolVar(&o.quiet, "quiet", false, "show no progress, and log nothing but warnings")
	return command
}

// check finds what is wrong with the flags.
func (o *appendOptions) check() error {
	switch {
	case o.idField == "":
		return cli.Usagef("--id-field is empty")
	case !slices.Contains(queue.Codecs(), o.codec):
		return cli.Usagef("--codec %s: this build has %s", o.codec, strings.Join(queue.Codecs(), ", "))
	case o.flushInterval < 0 || o.flushEvery < 0 || o.segmentAge < 0:
		return cli.Usagef("--flush-interval, --flush-every and --segment-age cannot be negative")
	case o.segmentSize <= 0 || o.segmentSize > queue.MaxSegmentBytes:
		return cli.Usagef("--segment-size %s: it must be over 0 and at most %s", &o.segmentSize, cli.FormatBytes(queue.MaxSegmentBytes))
	}
	return nil
}

func (o *appendOptions) run(ctx context.Context, env *cli.Env, args []string) (err error) {
	if err := o.check(); err != nil {
		return err
	}
	inputs, err := listInputs(args)
	if err != nil {
		return err
	}
	if o.quiet {
		env = env.Quiet()
	}
	writer, err := queue.OpenWriter(o.queueDir, &queue.WriterOptions{
		Codec:        o.codec,
		SegmentBytes: int64(o.segmentSize),
		SegmentAge:   o.segmentAge,
		Logger:       env.Log,
	})
	if err != nil {
		return cannotOpen(o.queueDir, err)
	}
	defer func() {
		if closeErr := writer.Close(); err == nil {
			err = closeErr
		}
	}()
	if o.resume {
		if inputs, err = o.skipRead(env, inputs, writer.Cursor()); err != nil {
			return err
		}
	}
	a := &appender{options: o, env: env, writer: writer, started: env.Now()}
	if !o.quiet {
		a.meter = cli.NewMeter(env, "appending", totalBytes(inputs))
	}
	return a.run(ctx, inputs)
}

// skipRead leaves of the inputs what the queue does not hold yet.
func (o *appendOptions) skipRead(env *cli.Env, inputs []*input, stored []byte) ([]*input, error) {
	for _, in := range inputs {
		if !in.stable {
			env.Log.Warn("a pipe cannot be resumed: after a crash its writer must send again what was not flushed, "+
				"and some of it may be appended twice", "input", in.name)
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

// appender moves items from the inputs into the queue. It belongs to one
// goroutine.
type appender struct {
	options *appendOptions
	env     *cli.Env
	writer  *queue.Writer
	meter   *cli.Meter // nil with --quiet
	started time.Time

	// What has been appended.
	documents, deletes, skipped, bytes int64

	in        *input // of the last item
	at        cursor // behind the last item
	unflushed int    // documents and deletes since the last flush
	broken    bool   // the writer has failed: there is nothing more to do with it
	encoded   []byte // the cursor, for the writer
}

// run appends all inputs. However it ends, everything appended is flushed.
func (a *appender) run(ctx context.Context, inputs []*input) error {
	p := newProducer(a.env.Stdin, &ndjson.Options{
		IDField:     a.options.idField,
		PlainFields: !a.options.controlFields,
		MaxIDBytes:  queue.MaxIDBytes,
	})
	stop := p.start(ctx, inputs)
	defer stop()

	a.in = inputs[0]
	err := a.consume(ctx, p)
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

// errInterrupted: the context ended before the input.
var errInterrupted = errors.New("interrupted")

// consume appends what the producer sends until it ends or ctx does.
func (a *appender) consume(ctx context.Context, p *producer) error {
	var tick <-chan time.Time
	if interval := a.options.flushInterval; interval > 0 {
		ticker := time.NewTicker(interval)
		defer ticker.Stop()
		tick = ticker.C
	}
	for {
		select {
		case <-ctx.Done():
			return errInterrupted
		case <-tick:
			if err := a.flush(); err != nil {
				return err
			}
		case b, more := <-p.filled:
			if !more && !p.complete {
				return errInterrupted
			}
			if !more {
				return nil
			}
			if err := a.appendBatch(ctx, b); err != nil {
				return err
			}
			p.recycle(b)
		}
	}
}

func (a *appender) appendBatch(ctx context.Context, b *batch) error {
	a.in = b.in
	before := a.bytes - b.start
	for i := range b.items {
		if ctx.Err() != nil {
			return errInterrupted
		}
		if err := a.appendItem(&b.items[i]); err != nil {
			return err
		}
		a.bytes = before + b.items[i].at.Offset
	}
	a.meter.Update(a.documents+a.deletes, a.bytes)
	return b.err
}

func (a *appender) appendItem(it *item) (err error) {
	switch {
	case it.problem != nil:
		return a.bad(it)
	case it.deletes:
		_, err = a.writer.Delete(it.id)
	default:
		_, err = a.writer.Put(queue.Record{ID: it.id, Document: it.document, Expires: it.expires})
	}
	if err != nil {
		a.broken = true
		return fmt.Errorf("appending %s:%d to %s: %w", a.in.name, it.at.Lines, a.options.queueDir, err)
	}
	if it.deletes {
		a.deletes++
	} else {
		a.documents++
	}
	a.at = it.at
	if a.in.stable {
		a.encoded = it.at.append(a.encoded[:0])
		a.writer.SetCursor(a.encoded)
	}
	a.unflushed++
	if every := a.options.flushEvery; every > 0 && a.unflushed >= every {
		return a.flush()
	}
	return nil
}

// bad passes over a bad line, or is the error that ends everything there.
func (a *appender) bad(it *item) error {
	if a.options.skipBad {
		a.skipped++
		a.env.Log.Warn("passed over a bad line", "at", fmt.Sprintf("%s:%d", a.in.name, it.at.Lines), "problem", it.problem.Error())
		return nil
	}
	return cli.Bare(fmt.Errorf("%s:%d: %w; correct the line, or pass over such lines with --skip-bad", a.in.name, it.at.Lines, it.problem))
}

// flush makes durable what has been appended and acknowledges it.
func (a *appender) flush() error {
	if err := a.writer.Flush(); err != nil {
		a.broken = true
		return fmt.Errorf("flushing %s: %w; what was flushed before is safe", a.options.queueDir, err)
	}
	if a.unflushed == 0 {
		return nil
	}
	a.unflushed = 0
	level := slog.LevelInfo
	if a.env.Terminal {
		level = slog.LevelDebug // the bar says enough
	}
	a.env.Log.Log(context.Background(), level, "flushed",
		"documents", a.documents, "deletes", a.deletes, "input", a.in.name, "line", a.at.Lines, "offset", a.at.Offset)
	return nil
}

// interrupted is how an interrupted run ends: the rest of a file is missing, a
// pipe may have been without end.
func (a *appender) interrupted() error {
	if !a.in.stable {
		return nil
	}
	return fmt.Errorf("interrupted behind %s:%d; everything up to there is in the queue, go on with --resume", a.in.name, a.at.Lines)
}

// report sums up the run.
func (a *appender) report() {
	if a.skipped > 0 {
		a.env.Log.Warn("bad lines were passed over", "lines", a.skipped)
	}
	elapsed := a.env.Now().Sub(a.started)
	perSecond := int64(0)
	if elapsed > 0 {
		perSecond = int64(float64(a.documents+a.deletes) / elapsed.Seconds())
	}
	a.env.Log.Info("appended", "documents", a.documents, "deletes", a.deletes, "bytes", a.bytes,
		"seconds", elapsed.Round(time.Millisecond).Seconds(), "documents_per_second", perSecond)
}
