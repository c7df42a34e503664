package updater

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"docstore/cmd/internal/cli"
	"docstore/queue"
)

func newGet(env *cli.Env) *cobra.Command {
	g := getter{env: env}
	command := &cobra.Command{
		Use:   "get ID --queue DIR",
		Short: "Write a document of a queue to standard output",
		Long: `Get writes the newest document with the id, and a newline. If there is none, or
it was deleted or has expired, it says so and exits with status 1. A queue has
no index: get reads the ids of all entries. The queue may be in use.

With --versions it writes a line of JSON for each entry with the id that the
queue still has, oldest first: its address, the time at which it was appended,
and the delete, or the document, with its expiry. A document that is not JSON is
encoded in base64.`,
		Example: `  docstore-updater get 4711 --queue /srv/queue/jobs
  docstore-updater get 4711 --versions --queue /srv/queue/jobs | jq .appended`,
		Args: cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			if err := checkID(args[0]); err != nil {
				return err
			}
			g.id = []byte(args[0])
			return g.run(command.Context())
		},
	}
	addQueueFlag(command, &g.dir)
	command.Flags().BoolVar(&g.versions, "versions", false, "write all entries with the id, as lines of JSON")
	return command
}

// checkID refuses an argument that cannot be an id.
func checkID(id string) error {
	if id == "" || len(id) > queue.MaxIDBytes {
		return cli.Usagef("the id %.40q has %d bytes: want 1 to %d", id, len(id), queue.MaxIDBytes)
	}
	return nil
}

// getter writes the entries of one id.
type getter struct {
	env      *cli.Env
	dir      string
	versions bool
	id       []byte

	reader *queue.Reader
	out    *cli.Output
	newest queue.Entry
	found  bool
}

// version is a line of get --versions.
type version struct {
	Address        string          `json:"address"`
	Appended       time.Time       `json:"appended"`
	Delete         bool            `json:"delete,omitempty"`
	Expires        *time.Time      `json:"expires,omitempty"`
	Document       json.RawMessage `json:"document,omitempty"`
	DocumentBase64 []byte          `json:"document_base64,omitempty"`
	Problem        string          `json:"problem,omitempty"` // why the document cannot be read
}

func (g *getter) run(ctx context.Context) error {
	dir, err := queueOf(g.dir, g.id)
	if err != nil {
		return err
	}
	reader, err := queue.OpenReader(dir, &queue.ReaderOptions{Logger: g.env.Log})
	if err != nil {
		return cannotOpen(dir, err)
	}
	defer func() { _ = reader.Close() }() // read only
	g.reader, g.out = reader, cli.NewOutput(g.env.Stdout)
	if err := reader.Scan(ctx, queue.Position{}, g.entry); err != nil {
		return fmt.Errorf("reading the queue %s: %w", dir, err)
	}
	if !g.versions {
		err = g.document()
	} else if !g.found {
		err = g.notFound("the queue has no entry with this id")
	}
	if flushed := g.out.Flush(); flushed != nil {
		return flushed
	}
	return err
}

// entry notes or writes an entry with the id.
func (g *getter) entry(e queue.Entry) error {
	if !bytes.Equal(e.ID, g.id) {
		return nil
	}
	g.newest, g.found = e, true
	if !g.versions {
		return nil
	}
	v := version{Address: e.Address.String(), Appended: e.Appended.UTC(), Delete: e.Deleted}
	if !e.Expires.IsZero() {
		expires := e.Expires.UTC()
		v.Expires = &expires
	}
	if !e.Deleted {
		document, err := g.reader.DocumentFor(nil, g.id, e.Address)
		switch {
		case err != nil:
			v.Problem = err.Error()
		case json.Valid(document):
			v.Document = document
		default:
			v.DocumentBase64 = document
		}
	}
	g.out.PrintJSON(v)
	return g.out.Err()
}

// document writes the newest document.
func (g *getter) document() error {
	e := g.newest
	switch {
	case !g.found:
		return g.notFound("the queue has no entry with this id")
	case e.Deleted:
		return g.notFound("it was deleted, at " + e.Address.String())
	case !e.Expires.IsZero() && !e.Expires.After(g.env.Now()):
		return g.notFound("it expired at " + e.Expires.UTC().Format(time.RFC3339))
	}
	document, err := g.reader.DocumentFor(nil, g.id, e.Address)
	if err != nil {
		return fmt.Errorf("reading %q at %s: %w", g.id, e.Address, err)
	}
	g.out.Write(document)
	g.out.Write([]byte("\n"))
	return nil
}

func (g *getter) notFound(why string) error {
	return cli.Bare(fmt.Errorf("not found: %q in %s: %s", g.id, g.dir, why))
}
