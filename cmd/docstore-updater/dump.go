package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"docstore/internal/cli"
	"docstore/internal/ndjson"
	"docstore/queue"
)

func newDump(env *cli.Env) *cobra.Command {
	d := dumper{env: env}
	command := &cobra.Command{
		Use:   "dump --queue DIR",
		Short: "Write everything in a queue as NDJSON",
		Long: `Dump writes all entries of a queue to standard output, oldest first: documents as
they were appended, a line each, and deletes as {"id":"...","_delete":true}. What
append reads of it with the same --id-field and --control-fields makes the same
entries again.

Documents that no such line can stand for are left out, reported, and make the
exit status 1: those that are damaged, those that other programs have put into
the queue and that are not JSON with their id and expiry in it, and with
--control-fields=false deletes. The queue may be in use.`,
		Example: `  docstore-updater dump --queue /srv/queue/jobs > jobs.ndjson
  docstore-updater dump --queue old | docstore-updater append --queue new --codec zstd`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			return d.run(command.Context())
		},
	}
	addQueueFlag(command, &d.dir)
	command.Flags().StringVar(&d.idField, "id-field", "id", "top-level field that holds a document's id")
	command.Flags().BoolVar(&d.controlFields, "control-fields", true, `write deletes with "_delete"; as given to append`)
	return command
}

// dumper writes the entries of a queue.
type dumper struct {
	env           *cli.Env
	dir           string
	idField       string
	controlFields bool

	reader  *queue.Reader
	out     *cli.Output
	parser  *ndjson.Parser
	line    []byte
	leftOut int64
}

func (d *dumper) run(ctx context.Context) error {
	if d.idField == "" {
		return cli.Usagef("--id-field is empty")
	}
	if err := requireDir(d.dir); err != nil {
		return err
	}
	reader, err := queue.OpenReader(d.dir, &queue.ReaderOptions{Logger: d.env.Log})
	if err != nil {
		return cannotOpen(d.dir, err)
	}
	defer func() { _ = reader.Close() }() // it has nothing to tell
	d.reader = reader
	d.out = cli.NewOutput(d.env.Stdout)
	d.parser = ndjson.NewParser(&ndjson.Options{IDField: d.idField, PlainFields: !d.controlFields, MaxIDBytes: queue.MaxIDBytes})
	err = reader.Scan(ctx, queue.Position{}, d.entry)
	if flushErr := d.out.Flush(); flushErr != nil {
		return flushErr
	}
	if err != nil {
		return fmt.Errorf("reading the queue %s: %w", d.dir, err)
	}
	if d.leftOut > 0 {
		return fmt.Errorf("%d entries of %s were left out, see above", d.leftOut, d.dir)
	}
	return nil
}

// entry writes one entry. Its error is one of writing, which ends the dump.
func (d *dumper) entry(e queue.Entry) error {
	line, err := d.render(e)
	if err != nil {
		d.leftOut++
		d.env.Log.Error("left out", "id", string(e.ID), "address", e.Address.String(), "reason", err.Error())
		return nil
	}
	d.out.Write(line)
	d.out.Write([]byte("\n"))
	return d.out.Err()
}

// render returns the line that append would take for the entry.
func (d *dumper) render(e queue.Entry) ([]byte, error) {
	if e.Deleted {
		return d.renderDelete(e.ID)
	}
	var err error
	if d.line, err = d.reader.DocumentFor(d.line[:0], e.ID, e.Address); err != nil {
		return nil, err
	}
	if bytes.IndexByte(d.line, '\n') >= 0 {
		return nil, fmt.Errorf("the document has more than one line")
	}
	got, err := d.parser.Parse(d.line)
	switch {
	case err != nil:
		return nil, err
	case !bytes.Equal(got.ID, e.ID):
		return nil, fmt.Errorf("the document says that its id is %q", got.ID)
	case got.Delete:
		return nil, fmt.Errorf("the document would be taken for a delete; use --control-fields=false")
	case expirySeconds(got) != expirySeconds(ndjson.Record{Expires: e.Expires}):
		return nil, fmt.Errorf("the document does not say when it expires, %s", e.Expires)
	}
	return d.line, nil
}

// expirySeconds is the expiry as precisely as a queue keeps it; 0 is never.
func expirySeconds(r ndjson.Record) int64 {
	if r.Expires.IsZero() {
		return 0
	}
	return r.Expires.Unix()
}

func (d *dumper) renderDelete(id []byte) ([]byte, error) {
	if !d.controlFields {
		return nil, fmt.Errorf("a delete needs control fields")
	}
	if !utf8.Valid(id) {
		return nil, fmt.Errorf("the id is not valid Unicode")
	}
	field, err := json.Marshal(d.idField)
	if err != nil {
		return nil, err
	}
	value, err := json.Marshal(string(id))
	if err != nil {
		return nil, err
	}
	d.line = fmt.Appendf(d.line[:0], `{%s:%s,"_delete":true}`, field, value)
	return d.line, nil
}
