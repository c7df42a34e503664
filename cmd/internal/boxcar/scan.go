package boxcar

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"docstore/boxcarrpc"
	"docstore/cmd/internal/cli"
	"docstore/docservice"
	"docstore/internal/ndjson"
)

func newScan(env *cli.Env) *cobra.Command {
	var s scan
	command := &cobra.Command{
		Use:   "scan [--servers A,B,... | --etcd E] --collection NAME [--prefix P] [--limit N]",
		Short: "Write the documents whose ids have a prefix, one line of JSON each",
		Long: `Scan writes a line for each id with the prefix, in byte order: in the format of
mget, or with --ids only the id. It reads page by page, and each page shows the
collection at the time of that request. If a server has not read its queue to
the end, scan uses the next one. Overloaded servers refuse scans before gets.

  {"id":"17","found":true,"document":{"title":"..."}}     JSON, embedded unchanged
  {"id":"18","found":true,"document_base64":"iVBORw0K"}   other bytes
  {"id":"20","found":false,"code":"...","error":"..."}    the fetch failed
  {"id":"17"}                                             with --ids

An id that is not UTF-8 is in "id_base64". To continue an interrupted scan,
pass the last id to --after. The exit status is 1 if a fetch failed; an empty
result is not a failure.`,
		Example: `  boxcar scan --collection jobs --prefix acme- --limit 10
  boxcar scan --collection jobs --ids | wc -l`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			return s.with(command.Context(), env, func(client documents) error {
				return s.run(boxcarrpc.WithBatch(command.Context()), env, client)
			})
		},
	}
	s.addFlags(command)
	command.PreRunE = func(command *cobra.Command, _ []string) error {
		err := s.check(command.Flags())
		if s.limit < 0 {
			err = errors.Join(err, cli.Usagef("--limit %d: must not be negative; 0 means all", s.limit))
		}
		return err
	}
	flags := command.Flags()
	flags.StringVar(&s.prefix, "prefix", "", "prefix of the ids; empty: all ids")
	flags.StringVar(&s.after, "after", "", "only ids after this one")
	flags.IntVar(&s.limit, "limit", 0, "maximum number of ids; 0: all")
	flags.BoolVar(&s.idsOnly, "ids", false, "write the ids without documents")
	return command
}

// scan is one run of the command.
type scan struct {
	connection
	prefix, after string
	limit         int
	idsOnly       bool

	out    *cli.Output
	line   []byte
	shown  int
	failed int // fetches that failed
}

func (s *scan) run(ctx context.Context, env *cli.Env, client documents) error {
	s.out = cli.NewOutput(env.Stdout)
	err := s.pages(ctx, client)
	if flushErr := s.out.Flush(); err == nil {
		err = flushErr
	}
	if err == nil && s.failed > 0 {
		err = couldNotFetch(s.failed, s.shown)
	}
	return err
}

func (s *scan) pages(ctx context.Context, client documents) error {
	o := docservice.ScanOptions{Prefix: []byte(s.prefix), After: []byte(s.after), IDsOnly: s.idsOnly}
	for s.limit == 0 || s.shown < s.limit {
		o.Limit = docservice.DefaultScanIDs
		if s.limit > 0 {
			o.Limit = min(o.Limit, s.limit-s.shown)
		}
		next, err := s.page(ctx, client, o)
		if errors.Is(err, docservice.ErrUnavailable) {
			return fmt.Errorf("no server can list collection %s: %w; see their /readyz", s.collection, err)
		}
		if err != nil {
			return s.explain(err)
		}
		if next == nil {
			return nil
		}
		o.After = next
	}
	return nil
}

// page fetches and writes a page within the timeout.
func (s *scan) page(ctx context.Context, client documents, o docservice.ScanOptions) (next []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	return client.Scan(ctx, o, func(id string, document []byte, err error) error {
		s.shown++
		switch {
		case err != nil:
			s.failed++
			s.line = ndjson.AppendFailed(s.line[:0], id, docservice.AnswerCode(err), err.Error())
		case s.idsOnly:
			s.line = append(ndjson.AppendID(append(s.line[:0], '{'), id), "}\n"...)
		default:
			s.line = ndjson.AppendFound(s.line[:0], id, document)
		}
		s.out.Write(s.line)
		return s.out.Err()
	})
}
