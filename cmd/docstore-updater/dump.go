package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"docstore/cmd/internal/cli"
	"docstore/cmd/internal/records"
	"docstore/queue"
)

func newDump(env *cli.Env) *cobra.Command {
	d := dumper{env: env}
	command := &cobra.Command{
		Use:   "dump --queue DIR",
		Short: "Write everything in a queue as NDJSON",
		Long: `Dump writes all entries of a queue to standard output, oldest first, a line
each: documents as they were appended, and deletes as {"id":"...","_delete":true}.
A document that no such line can stand for, because it is no JSON, has lines or
control fields of its own, or does not say its id or expiry, is written as

  {"id":"...","_expires":"...","_document_base64":"..."}

What append reads of it with the same --id-field makes the same entries again.
Without --id-field dump looks at the first documents: where all of them have their id in
one other field, it takes that for the id's, and says so on standard error.
Documents that are damaged are left out, reported, and make the exit status 1.
So are, with --control-fields=false, deletes and what would need control fields.
The queue may be in use.`,
		Example: `  docstore-updater dump --queue /srv/queue/jobs > jobs.ndjson
  docstore-updater dump --queue old | docstore-updater append --queue new --codec zstd`,
		Args: cobra.NoArgs,
		PreRunE: func(*cobra.Command, []string) error {
			if d.idField == "" {
				return cli.Usagef("--id-field is empty; give the name of the field that holds the id")
			}
			return nil
		},
		RunE: func(command *cobra.Command, _ []string) error {
			return d.run(command.Context(), command.Flags().Changed("id-field"))
		},
	}
	addQueueFlag(command, &d.dir)
	command.Flags().StringVar(&d.idField, "id-field", "id", "top-level field that holds a document's id")
	command.Flags().BoolVar(&d.controlFields, "control-fields", true, `write "_delete", "_document_base64" and the like; false as given to append`)
	return command
}

// dumper writes the entries of a queue.
type dumper struct {
	env           *cli.Env
	dir           string
	idField       string
	controlFields bool

	reader         *queue.Reader
	out            *cli.Output
	parser         *records.Parser
	quotedField    []byte // the id's, with its colon
	document, line []byte
	leftOut        int64
}

// run dumps the queue. idFieldGiven tells whether --id-field was given.
func (d *dumper) run(ctx context.Context, idFieldGiven bool) error {
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
	if !idFieldGiven {
		if err := d.findIDField(ctx); err != nil {
			return fmt.Errorf("reading the queue %s: %w", d.dir, err)
		}
	}
	d.parser = records.NewParser(&records.Options{IDField: d.idField, PlainFields: !d.controlFields, MaxIDBytes: queue.MaxIDBytes})
	d.quotedField = append(quote(d.idField), ':')
	err = reader.Scan(ctx, queue.Position{}, d.entry)
	if flushErr := d.out.Flush(); flushErr != nil {
		return flushErr
	}
	if err != nil {
		return fmt.Errorf("reading the queue %s: %w", d.dir, err)
	}
	if d.leftOut > 0 {
		return fmt.Errorf("left out, see above: %s of %s", cli.FormatCountOf(d.leftOut, "entry", "entries"), d.dir)
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
		if !d.controlFields {
			return nil, errors.New("a delete needs control fields")
		}
		return d.wrap(e), nil
	}
	var err error
	if d.document, err = d.reader.DocumentFor(d.document[:0], e.ID, e.Address); err != nil {
		return nil, err
	}
	problem := d.saysAll(e)
	switch {
	case problem == nil:
		return d.document, nil
	case !d.controlFields:
		return nil, fmt.Errorf("without control fields no line can stand for it: %w", problem)
	}
	return d.wrap(e), nil
}

// saysAll finds what keeps the document's own line from standing for the entry.
func (d *dumper) saysAll(e queue.Entry) error {
	if bytes.IndexByte(d.document, '\n') >= 0 {
		return errors.New("the document has more than one line")
	}
	got, err := d.parser.Parse(d.document)
	switch {
	case err != nil:
		return err
	case !bytes.Equal(got.ID, e.ID):
		return fmt.Errorf("the document says that its id is %q", got.ID)
	case got.Delete || !bytes.Equal(got.Document, d.document):
		return errors.New("the document would be taken for something else")
	case expirySeconds(got.Expires) != expirySeconds(e.Expires):
		return fmt.Errorf("the document does not say when it expires, %s", e.Expires)
	}
	return nil
}

// wrap returns a line of control fields for the entry.
func (d *dumper) wrap(e queue.Entry) []byte {
	d.line = append(d.line[:0], '{')
	if utf8.Valid(e.ID) && len(e.ID) > 0 {
		d.line = append(d.line, d.quotedField...)
		d.line = append(d.line, quote(string(e.ID))...)
	} else {
		d.line = append(d.line, `"_id_base64":`...)
		d.line = appendBase64(d.line, e.ID)
	}
	if e.Deleted {
		return append(d.line, `,"_delete":true}`...)
	}
	if !e.Expires.IsZero() {
		d.line = fmt.Appendf(d.line, `,"_expires":%q`, e.Expires.UTC().Format(time.RFC3339))
	}
	d.line = append(d.line, `,"_document_base64":`...)
	d.line = appendBase64(d.line, d.document)
	return append(d.line, '}')
}

func appendBase64(dst, b []byte) []byte {
	dst = append(dst, '"')
	dst = base64.StdEncoding.AppendEncode(dst, b)
	return append(dst, '"')
}

// quote is a string as JSON.
func quote(s string) []byte {
	quoted, err := json.Marshal(s)
	if err != nil {
		panic(err) // no string is unknown to JSON
	}
	return quoted
}

// expirySeconds is an expiry as precisely as a queue keeps it; 0 is never.
func expirySeconds(expires time.Time) int64 {
	if expires.IsZero() {
		return 0
	}
	return expires.Unix()
}
