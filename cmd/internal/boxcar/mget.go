package boxcar

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"docstore/cmd/internal/cli"
	"docstore/docservice"
	"docstore/ingest/records"
	"docstore/internal/eof"
	"docstore/internal/ndjson"
	"docstore/internal/units"
	"docstore/queue"
)

// batchIDs is the number of documents fetched together.
const batchIDs = 256

func newMget(env *cli.Env) *cobra.Command {
	var c connection
	command := &cobra.Command{
		Use:   "mget [--servers A,B,... | --etcd E] --collection NAME ID... | -",
		Short: "Write many documents to standard output, one line of JSON each",
		Long: `Mget writes a line for each id, in the order of the arguments. With "-" it
reads the ids from standard input, one per line.

  {"id":"17","found":true,"document":{"title":"..."}}     JSON, embedded unchanged
  {"id":"18","found":true,"document_base64":"iVBORw0K"}   other bytes, and JSON of more
                                                          than one line
  {"id":"19","found":false}                               not found
  {"id":"20","found":false,"code":"...","error":"..."}    the fetch failed

The code is unavailable, moved, invalid_id or internal. An id that is not UTF-8
is in "id_base64".

The exit status is 1 if a fetch failed; a document that is not found is not a
failure.`,
		Example: `  boxcar mget --collection jobs 4711 4712
  boxcar mget --servers 10.0.0.1:7070,10.0.0.2:7070 --collection jobs - < ids.txt`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			return c.with(command.Context(), env, func(client documents) error {
				m := &multiGet{connection: &c, client: client, out: cli.NewOutput(env.Stdout)}
				if len(args) == 1 && args[0] == "-" {
					return m.finish(m.fromInput(command.Context(), env.Stdin))
				}
				return m.finish(m.fromArguments(command.Context(), args))
			})
		},
	}
	c.addFlags(command)
	return command
}

// multiGet is one run of the command.
type multiGet struct {
	*connection
	client documents
	out    *cli.Output
	line   []byte
	asked  int
	failed int // fetches that failed
}

func (m *multiGet) fromArguments(ctx context.Context, ids []string) error {
	for len(ids) > 0 {
		n := min(len(ids), batchIDs)
		if err := m.fetch(ctx, ids[:n]); err != nil {
			return err
		}
		ids = ids[n:]
	}
	return nil
}

// fromInput fetches when no further id is waiting, so that it can answer a program at the
// other end of a pipe.
func (m *multiGet) fromInput(ctx context.Context, in io.Reader) error {
	lines := records.NewLines(in, queue.MaxIDBytes, 0, 0)
	var ids []string
	for {
		line, err := lines.Next()
		if eof.Is(err) {
			return m.fetch(ctx, ids)
		}
		if err != nil {
			return fmt.Errorf("reading standard input: %w", err)
		}
		if line.Problem != nil {
			return cli.Bare(fmt.Errorf("standard input:%d: an id has at most %d bytes; write one id per line", line.Number, queue.MaxIDBytes))
		}
		ids = append(ids, string(line.Text))
		if len(ids) == batchIDs || !lines.Waiting() {
			if err := m.fetch(ctx, ids); err != nil {
				return err
			}
			ids = ids[:0]
		}
	}
}

// fetch fetches some ids and prints their lines.
func (m *multiGet) fetch(ctx context.Context, ids []string) error {
	if len(ids) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, m.timeout)
	defer cancel()
	err := m.client.GetMany(ctx, ids, func(i int, document []byte, err error) error {
		m.asked++
		m.print(ids[i], document, err)
		return m.out.Err()
	})
	if err != nil {
		return m.explain(err)
	}
	return m.out.Flush()
}

func (m *multiGet) print(id string, document []byte, err error) {
	switch {
	case err == nil:
		m.line = ndjson.AppendFound(m.line[:0], id, document)
	case errors.Is(err, docservice.ErrNotFound):
		m.line = ndjson.AppendNotFound(m.line[:0], id)
	default:
		m.failed++
		m.line = ndjson.AppendFailed(m.line[:0], id, docservice.AnswerCode(err), err.Error())
	}
	m.out.Write(m.line)
}

// couldNotFetch returns the error that some of all documents could not be fetched.
func couldNotFetch(some, all int) error {
	return fmt.Errorf("%d of %s could not be fetched", some, units.FormatCountOf(int64(all), "document", "documents"))
}

// finish returns the result of the run.
func (m *multiGet) finish(err error) error {
	if flushErr := m.out.Flush(); err == nil {
		err = flushErr
	}
	if err == nil && m.failed > 0 {
		err = couldNotFetch(m.failed, m.asked)
	}
	return err
}
