package updater

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
	"docstore/ingest/records"
	"docstore/internal/units"
	"docstore/queue"
)

func newDump(env *cli.Env) *cobra.Command {
	d := dumper{env: env, liveMemory: liveMemory}
	command := &cobra.Command{
		Use:   "dump --queue DIR",
		Short: "Write the entries of a queue as NDJSON",
		Long: `Dump writes the entries of a queue to standard output, oldest first, one per
line, of shards one after the other: documents as they were appended, and
deletes as {"id":"...","_delete":true}. A document for which that is not
possible, because it has control fields, or does not contain its id or expiry,
is written as

  {"id":"...","_expires":"...","_document":...}

and one that is not JSON, or has several lines, as

  {"id":"...","_expires":"...","_document_base64":"..."}

Append with the same --id-field restores the same entries. Without --id-field
dump examines the first documents: if all of them have their id in one other
field, it uses that field, and reports it on standard error. Damaged documents
are skipped and reported, and make the exit status 1. With
--control-fields=false so are deletes and documents that need control fields.

Canaries, those of "append --canary" and "boxcar probe", are left out, unless
--id or --prefix names them.

The entries can be selected by id, segment and number. --until dumps the queue
as it was at a position that "stats" printed. --live dumps the newest document
of each id; it reads the ids of the queue twice for every four million entries,
and then writes the documents of a part of the ids after those of another.

The queue may be in use.`,
		Example: `  docstore-updater dump --queue /srv/queue/jobs > jobs.ndjson
  docstore-updater dump --queue /srv/queue/jobs --prefix acme- --live --limit 10
  docstore-updater dump --queue /srv/queue/jobs --live --until 8/4096/0
  docstore-updater dump --queue old | docstore-updater append --queue new --codec zstd`,
		Args: cobra.NoArgs,
		PreRunE: func(*cobra.Command, []string) error {
			if d.idField == "" {
				return errors.Join(cli.Usagef("--id-field is empty; give the name of the field that holds the id"), d.check())
			}
			return d.check()
		},
		RunE: func(command *cobra.Command, _ []string) error {
			return d.run(command.Context(), command.Flags().Changed("id-field"))
		},
	}
	addQueueFlag(command, &d.dir)
	d.addFlags(command.Flags())
	command.Flags().StringVar(&d.idField, "id-field", "id", "top-level field that holds a document's id")
	command.Flags().BoolVar(&d.controlFields, "control-fields", true, `write "_delete", "_document_base64" and so on; use the same value as for append`)
	return command
}

// dumper writes the entries of a queue.
type dumper struct {
	env           *cli.Env
	dir           string
	idField       string
	controlFields bool
	selection
	liveMemory int64 // see selected

	reader         *queue.Reader
	out            *cli.Output
	parser         *records.Parser
	quotedField    []byte // the id's field name with quotes and colon
	document, line []byte
	leftOut        int64
	left           int64 // entries until the limit, if there is one
	sampled        bool  // the id field was given, or found in the first documents
}

// run dumps the queue. idFieldGiven says that --id-field was given.
func (d *dumper) run(ctx context.Context, idFieldGiven bool) error {
	dirs, err := queueDirs(d.dir)
	if err != nil {
		return err
	}
	if len(dirs) > 1 && (d.segment > 0 || d.until != "") {
		return cli.Usagef("--segment and --until: %s has %d shards, and each has other segments; give --queue %s, for example", d.dir, len(dirs), dirs[0])
	}
	d.out, d.sampled, d.left = cli.NewOutput(d.env.Stdout), idFieldGiven, d.limit
	for _, dir := range dirs {
		if err = d.dump(ctx, dir); err != nil {
			break
		}
	}
	if errors.Is(err, errLimit) {
		err = nil
	}
	if flushErr := d.out.Flush(); flushErr != nil {
		return flushErr
	}
	if err != nil {
		return err
	}
	if d.leftOut > 0 {
		return fmt.Errorf("left out, see above: %s of %s", units.FormatCountOf(d.leftOut, "entry", "entries"), d.dir)
	}
	return nil
}

// dump writes the entries of a shard.
func (d *dumper) dump(ctx context.Context, dir string) error {
	reader, err := queue.OpenReader(dir, &queue.ReaderOptions{Logger: d.env.Log})
	if err != nil {
		return cannotOpen(dir, err)
	}
	defer func() { _ = reader.Close() }() // read only
	d.reader = reader
	if !d.sampled {
		if err := d.findIDField(ctx); err != nil {
			return fmt.Errorf("reading the queue %s: %w", dir, err)
		}
	}
	d.parser = records.NewParser(&records.Options{IDField: d.idField, PlainFields: !d.controlFields, MaxIDBytes: queue.MaxIDBytes})
	d.quotedField = append(quote(d.idField), ':')
	if err := d.selected(ctx); err != nil {
		return fmt.Errorf("reading the queue %s: %w", dir, err)
	}
	return nil
}

// entry writes one entry. An error of writing stops the dump.
func (d *dumper) entry(e queue.Entry) error {
	line, err := d.render(e)
	if err != nil {
		d.leftOut++
		d.env.Log.Error("left out", "id", string(e.ID), "address", e.Address.String(), "reason", err.Error())
		return nil
	}
	d.out.Write(line)
	d.out.Write([]byte("\n"))
	if d.left--; d.left == 0 {
		return errLimit
	}
	return d.out.Err()
}

// errLimit ends the dump.
var errLimit = errors.New("the limit is reached")

// render returns the line for the entry, as append reads it.
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
	problem := d.canBePlain(e)
	switch {
	case problem == nil:
		return d.document, nil
	case !d.controlFields:
		return nil, fmt.Errorf("it cannot be written without control fields: %w", problem)
	}
	return d.wrap(e), nil
}

// canBePlain returns why the document's own line does not restore the entry, nil if it
// does.
func (d *dumper) canBePlain(e queue.Entry) error {
	if bytes.IndexByte(d.document, '\n') >= 0 {
		return errors.New("the document has more than one line")
	}
	got, err := d.parser.Parse(d.document)
	switch {
	case err != nil:
		return err
	case !bytes.Equal(got.ID, e.ID):
		return fmt.Errorf("the id in the document is %q", got.ID)
	case got.Delete || !bytes.Equal(got.Document, d.document):
		return errors.New("the document would be read as another entry")
	case expirySeconds(got.Expires) != expirySeconds(e.Expires):
		return fmt.Errorf("the document does not contain its expiry, %s", e.Expires)
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
	if d.isValue() {
		d.line = append(append(d.line, `,"_document":`...), d.document...)
	} else {
		d.line = appendBase64(append(d.line, `,"_document_base64":`...), d.document)
	}
	return append(d.line, '}')
}

// isValue reports whether the document can be a value in a line, and is read back unchanged.
func (d *dumper) isValue() bool {
	return bytes.IndexByte(d.document, '\n') < 0 && records.Valid(d.document) && len(bytes.Trim(d.document, " \t\r")) == len(d.document)
}

func appendBase64(dst, b []byte) []byte {
	dst = append(dst, '"')
	dst = base64.StdEncoding.AppendEncode(dst, b)
	return append(dst, '"')
}

// quote returns a string as JSON.
func quote(s string) []byte {
	quoted, err := json.Marshal(s)
	if err != nil {
		panic(err) // encoding a string does not fail
	}
	return quoted
}

// expirySeconds converts an expiry to the resolution of a queue; 0 is never.
func expirySeconds(expires time.Time) int64 {
	if expires.IsZero() {
		return 0
	}
	return expires.Unix()
}
