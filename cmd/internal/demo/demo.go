// Package demo is the demonstration: it runs updater, daemon and client in one process, with
// generated documents. It links only what these need.
package demo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"docstore/boxcarrpc"
	"docstore/boxcarrpc/discovery"
	"docstore/cmd/internal/cli"
	"docstore/docservice"
	"docstore/docservice/collection"
	"docstore/docservice/server"
	"docstore/internal/jobs"
	"docstore/internal/listen"
	"docstore/internal/units"
	"docstore/queue"
)

const (
	demoDocuments   = 20_000
	demoFetches     = 10_000 // by one caller
	demoCallers     = 64
	demoFetchesMany = 100_000 // by all callers
	demoCollection  = "jobs"
	demoMemory      = 512 << 20
)

// New returns the command NAME, as part of a parent's command if path has several words.
func New(env *cli.Env, path string) *cobra.Command {
	d := demo{documents: demoDocuments, fetches: demoFetches, fetchesMany: demoFetchesMany}
	name := path[strings.LastIndexByte(path, ' ')+1:]
	command := &cobra.Command{
		Use:   name + " [--exit]",
		Short: "Run all parts in one process with generated documents",
		Long: `Generate 20,000 job postings, append them to a queue, index and serve them,
fetch some through a Boxcar client, update one and delete one, and print how
long each step takes. Then serve until Ctrl-C. The command uses a temporary
directory, which it removes at the end, and only the loopback network.`,
		Example: "  " + path,
		Args:    cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			return d.run(command.Context(), env)
		},
	}
	command.Flags().BoolVar(&d.exit, "exit", false, "exit at the end instead of serving until Ctrl-C")
	return command
}

// demo is one run of the demonstration.
type demo struct {
	documents, fetches, fetchesMany int
	exit                            bool
	shown                           bool // a line of working

	env    *cli.Env
	out    *cli.Output
	dir    string
	daemon *server.Server
	client *docservice.Client
}

func (d *demo) run(ctx context.Context, env *cli.Env) (err error) {
	d.env, d.out = env.Quiet(), cli.NewOutput(env.Stdout) // the demonstration prints its own progress
	if d.dir, err = os.MkdirTemp("", "docstore-demo-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(d.dir)) }()

	d.say("Docstore: all parts in one process.\n")
	if err := d.append(ctx); err != nil {
		return ending(ctx, err)
	}
	if err := d.serve(ctx); err != nil {
		return ending(ctx, err)
	}
	defer func() { err = errors.Join(err, d.daemon.Stop(time.Second)) }()
	pool, err := boxcarrpc.NewPool(discovery.Static(d.daemon.BoxcarAddress()), &boxcarrpc.PoolOptions{
		Size:    demoCallers,
		MaxWait: time.Second,
		Methods: docservice.IdempotentMethods(),
		Logger:  d.env.Log,
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, pool.Close()) }()
	d.client = docservice.NewClient(pool, demoCollection)
	for _, step := range []func(context.Context) error{pool.WaitReady, d.fetch, d.change} {
		if err := step(ctx); err != nil {
			return ending(ctx, err)
		}
	}
	d.suggest()
	if d.exit {
		return d.out.Flush()
	}
	d.say("\nStill serving; press Ctrl-C to stop and remove %s.", d.dir)
	select {
	case <-ctx.Done():
	case <-d.daemon.Failed(): // Stop returns the error
	}
	return d.out.Err()
}

// ending converts an error caused by Ctrl-C to nil.
func ending(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return err
	}
	return nil
}

// working shows on a terminal what the next line waits for.
func (d *demo) working(format string, args ...any) {
	if d.env.Terminal {
		_, _ = fmt.Fprintf(d.env.Stderr, eraseLine+"            "+format+" ...", args...) // best effort
		d.shown = true
	}
}

// eraseLine erases the line of the cursor on a terminal.
const eraseLine = "\r\x1b[K"

// say prints a line, in place of that of working, and flushes it.
func (d *demo) say(format string, args ...any) {
	if d.shown {
		_, _ = io.WriteString(d.env.Stderr, eraseLine) // best effort
		d.shown = false
	}
	d.out.Printf(format+"\n", args...)
	_ = d.out.Flush() // the last Flush reports the error
}

func (d *demo) queueDir() string { return filepath.Join(d.dir, "queue") }

// append writes the documents to the queue.
func (d *demo) append(ctx context.Context) (err error) {
	d.working("appending %s job postings", units.FormatCount(int64(d.documents)))
	postings := jobs.New(1)
	documents := make([][]byte, d.documents)
	var raw int64
	for i := range documents {
		documents[i] = postings.Next()
		raw += int64(len(documents[i]))
	}
	started := time.Now()
	writer, err := queue.OpenWriter(d.queueDir(), &queue.WriterOptions{Logger: d.env.Log})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, writer.Close()) }()
	for i, document := range documents {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if _, err := writer.Append([]byte(jobs.ID(i+1)), document); err != nil {
			return err
		}
	}
	if err := writer.Flush(); err != nil {
		return err
	}
	elapsed := time.Since(started)
	stored, err := storedBytes(d.queueDir())
	if err != nil {
		return err
	}
	d.say("1. Append   %s generated job postings, %s, to a queue: %s", units.FormatCount(int64(d.documents)), units.FormatBytes(raw), pace(d.documents, elapsed))
	d.say("            on disk, synced, in %s (%d %% of it) with codec %s", units.FormatBytes(stored), stored*100/raw, queue.DefaultCodec)
	return nil
}

// storedBytes returns the size of the segments of a queue.
func storedBytes(dir string) (int64, error) {
	reader, err := queue.OpenReader(dir, nil)
	if err != nil {
		return 0, err
	}
	defer func() { _ = reader.Close() }() // read only
	segments, err := reader.Segments()
	var total int64
	for _, s := range segments {
		total += s.Bytes
	}
	return total, err
}

// pace formats a rate, for example "0.31 s, 64,000 documents/s".
func pace(documents int, elapsed time.Duration) string {
	return fmt.Sprintf("%.2f s, %s documents/s", elapsed.Seconds(), units.FormatCount(int64(float64(documents)/elapsed.Seconds())))
}

// serve starts a daemon on the queue and waits until it has indexed it.
func (d *demo) serve(ctx context.Context) (err error) {
	d.working("indexing")
	started := time.Now()
	d.daemon, err = server.Start(server.Options{
		Collections: []server.Collection{{Name: demoCollection, Source: d.queueDir()}},
		DataDir:     filepath.Join(d.dir, "data"),
		Boxcar:      addressOrAny(server.DefaultBoxcar),
		HTTP:        server.HTTP{Address: addressOrAny(server.DefaultHTTP)},
		Memory:      demoMemory,
		Logger:      d.env.Log,
	})
	if err != nil {
		return err
	}
	if err := d.collection().WaitReady(ctx); err != nil {
		return errors.Join(err, d.daemon.Stop(time.Second))
	}
	d.say("2. Index    the daemon has tailed the queue into its index: %s", pace(d.documents, time.Since(started)))
	d.say("3. Serve    Boxcar on %s%s, HTTP on %s%s",
		d.daemon.BoxcarAddress(), whyNot(server.DefaultBoxcar, d.daemon.BoxcarAddress()),
		d.daemon.HTTPAddress(), whyNot(server.DefaultHTTP, d.daemon.HTTPAddress()))
	return nil
}

// addressOrAny returns the address if it is free, otherwise one with port 0.
func addressOrAny(address string) string {
	listener, err := listen.TCP("", address)
	if err != nil {
		return "127.0.0.1:0"
	}
	_ = listener.Close() // nothing was accepted
	return address
}

func whyNot(wanted, got string) string {
	if wanted == got {
		return ""
	}
	return fmt.Sprintf(" (%s is in use)", wanted)
}

func (d *demo) collection() *collection.Collection { return d.daemon.Collections()[0] }

// demoID is the id of the document that the demonstration shows.
func (d *demo) demoID() string { return jobs.ID(min(4711, d.documents)) }

// fetch shows a document and measures the rate of fetches.
func (d *demo) fetch(ctx context.Context) error {
	document, err := d.client.Get(ctx, nil, d.demoID())
	if err != nil {
		return err
	}
	d.say("4. Fetch    %s through a Boxcar client:", d.demoID())
	d.say("            %s", shorten(document))
	for _, load := range []struct{ callers, fetches int }{{1, d.fetches}, {demoCallers, d.fetchesMany}} {
		d.working("fetching %s random documents, callers: %d", units.FormatCount(int64(load.fetches)), load.callers)
		elapsed, err := d.load(ctx, load.callers, load.fetches)
		if err != nil {
			return err
		}
		d.say("            callers: %2d, random documents: %s, %s", load.callers, units.FormatCount(int64(load.fetches)), pace(load.fetches, elapsed))
	}
	return nil
}

// load makes callers fetch random documents, and checks each document.
func (d *demo) load(ctx context.Context, callers, fetches int) (time.Duration, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var running sync.WaitGroup
	started := time.Now()
	for caller := range callers {
		running.Go(func() {
			random := rand.New(rand.NewPCG(uint64(caller), 0))
			var buffer []byte
			for range fetches / callers {
				id := jobs.ID(1 + random.IntN(d.documents))
				document, err := d.client.Get(ctx, buffer[:0], id)
				if err == nil && !bytes.HasPrefix(document, []byte(`{"id":"`+id+`"`)) {
					err = fmt.Errorf("requested %s, got %.60s", id, document)
				}
				if err != nil {
					cancel(err)
					return
				}
				buffer = document
			}
		})
	}
	running.Wait()
	return time.Since(started), context.Cause(ctx)
}

// change updates a document and deletes another, and shows the served documents.
func (d *demo) change(ctx context.Context) error {
	deleted := jobs.ID(1)
	before, err := d.client.Get(ctx, nil, d.demoID())
	if err != nil {
		return err
	}
	updated := bytes.Replace(before, []byte(`"title":"`), []byte(`"title":"(filled) `), 1)
	started := time.Now()
	last, err := d.appendChanges(updated, deleted)
	if err != nil {
		return err
	}
	if err := d.collection().WaitFor(ctx, last); err != nil {
		return err
	}
	elapsed := time.Since(started)
	after, err := d.client.Get(ctx, nil, d.demoID())
	if err != nil {
		return err
	}
	if _, err := d.client.Get(ctx, nil, deleted); !errors.Is(err, docservice.ErrNotFound) {
		return fmt.Errorf("%s was deleted, but fetching it returns: %w", deleted, err)
	}
	d.say("5. Change   %s updated, %s deleted; both served %.0f ms after they were written:", d.demoID(), deleted, elapsed.Seconds()*1e3)
	d.say("            before  %s", shorten(before))
	d.say("            after   %s", shorten(after))
	d.say("            %s  not found", deleted)
	return nil
}

// appendChanges writes as the updater does, and closes the queue. It returns the address of
// the last change.
func (d *demo) appendChanges(updated []byte, deleted string) (last queue.Address, err error) {
	writer, err := queue.OpenWriter(d.queueDir(), &queue.WriterOptions{Logger: d.env.Log})
	if err != nil {
		return last, err
	}
	defer func() { err = errors.Join(err, writer.Close()) }()
	if _, err := writer.Append([]byte(d.demoID()), updated); err != nil {
		return last, err
	}
	if last, err = writer.Delete([]byte(deleted)); err != nil {
		return last, err
	}
	return last, writer.Flush()
}

// shorten returns the beginning of a document, for a terminal line.
func shorten(document []byte) string {
	const width = 100
	if len(document) <= width {
		return string(document)
	}
	return fmt.Sprintf("%s... (%d bytes)", bytes.ToValidUTF8(document[:width], nil), len(document))
}

// suggest prints commands to try while the demonstration serves.
func (d *demo) suggest() {
	boxcar, http := d.daemon.BoxcarAddress(), d.daemon.HTTPAddress()
	d.say("6. Try      from another terminal in this directory:")
	for _, command := range []string{
		fmt.Sprintf("http://%s/ in a browser shows the live page", http),
		fmt.Sprintf("curl http://%s/documents/%s/%s", http, demoCollection, d.demoID()),
		fmt.Sprintf("curl http://%s/readyz", http),
		fmt.Sprintf("curl http://%s/metrics", http),
		fmt.Sprintf("go run ./cmd/docstore mget --servers %s --collection %s %s %s", boxcar, demoCollection, jobs.ID(2), jobs.ID(1)),
		fmt.Sprintf(`echo '{"id":"hello","text":"world"}' | go run ./cmd/docstore append --queue %s`, d.queueDir()),
		fmt.Sprintf("go run ./cmd/docstore get --servers %s --collection %s hello", boxcar, demoCollection),
		fmt.Sprintf("go run ./cmd/docstore stats --queue %s", d.queueDir()),
	} {
		d.say("            %s", command)
	}
}
