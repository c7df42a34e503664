package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"docstore/cmd/internal/cli"
	"docstore/docservice"
)

func newScan(env *cli.Env) *cobra.Command {
	var s scan
	command := &cobra.Command{
		Use:   "scan --servers A,B,... --collection NAME [--prefix P] [--limit N]",
		Short: "Write the documents whose ids begin alike, a line of JSON each",
		Long: `Scan writes a line for each id that begins with the prefix, in the order of their
bytes: as mget does, or with --ids the id alone. It asks page by page, and each
page shows the collection as it was when the server made it. Where a server has
not read its queue to the end the next one is asked.

  {"id":"17","found":true,"document":{"title":"..."}}     JSON, embedded as it is
  {"id":"18","found":true,"document_base64":"iVBORw0K"}   anything else
  {"id":"20","found":false,"error":"..."}                 it could not be fetched
  {"id":"17"}                                             with --ids

An id that is not UTF-8 is in "id_base64". To go on where a scan has ended, give
the last id to --after. The exit status is 1 if a document could not be fetched;
that there is none with the prefix is an answer like any other.`,
		Example: `  boxcar scan --collection jobs --prefix acme- --limit 10
  boxcar scan --collection jobs --ids | wc -l`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			return s.with(command.Context(), env, func(client *docservice.Client) error {
				return s.run(command.Context(), env, client)
			})
		},
	}
	s.addFlags(command)
	command.PreRunE = func(*cobra.Command, []string) error {
		err := s.check()
		if s.limit < 0 {
			err = errors.Join(err, cli.Usagef("--limit %d: it must be 0, for all, or more", s.limit))
		}
		return err
	}
	flags := command.Flags()
	flags.StringVar(&s.prefix, "prefix", "", "what the ids begin with; empty is all of them")
	flags.StringVar(&s.after, "after", "", "only ids behind this one")
	flags.IntVar(&s.limit, "limit", 0, "how many to write at most; 0 is all")
	flags.BoolVar(&s.idsOnly, "ids", false, "write the ids without the documents")
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
	failed int // could not be fetched
}

func (s *scan) run(ctx context.Context, env *cli.Env, client *docservice.Client) error {
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

func (s *scan) pages(ctx context.Context, client *docservice.Client) error {
	o := docservice.ScanOptions{Prefix: []byte(s.prefix), After: []byte(s.after), IDsOnly: s.idsOnly}
	for s.limit == 0 || s.shown < s.limit {
		o.Limit = docservice.DefaultScanIDs
		if s.limit > 0 {
			o.Limit = min(o.Limit, s.limit-s.shown)
		}
		next, err := s.page(ctx, client, o)
		if errors.Is(err, docservice.ErrUnavailable) {
			return fmt.Errorf("no server can list collection %s: %w; their /readyz says more", s.collection, err)
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

// page fetches and writes a page within the time for an answer.
func (s *scan) page(ctx context.Context, client *docservice.Client, o docservice.ScanOptions) (next []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	return client.Scan(ctx, o, func(id string, document []byte, err error) error {
		s.shown++
		switch {
		case err != nil:
			s.failed++
			s.line = cli.AppendNotFound(s.line[:0], id, err.Error())
		case s.idsOnly:
			s.line = append(cli.AppendID(append(s.line[:0], '{'), id), "}\n"...)
		default:
			s.line = cli.AppendFound(s.line[:0], id, document)
		}
		s.out.Write(s.line)
		return s.out.Err()
	})
}
