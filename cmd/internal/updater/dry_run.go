package updater

import (
	"context"
	"errors"
	"fmt"
	"time"

	"docstore/cmd/internal/cli"
	"docstore/ingest"
	"docstore/ingest/sources"
	"docstore/internal/eof"
)

// dryRunDocuments is the number of documents that --dry-run prints.
const dryRunDocuments = 10

// printDocuments prints the first documents of a source. It fails if all are invalid.
func (o *appendOptions) printDocuments(ctx context.Context, env *cli.Env, in *sources.Input) (err error) {
	from, err := in.Opener.Open(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = from.Close() }() // it was only read
	out := cli.NewOutput(env.Stdout)
	parser := ingest.NewParser(in.Parsing)
	printed, valid := 0, 0
	for printed < dryRunDocuments {
		b, err := from.Next(ctx)
		if eof.Is(err) {
			break
		}
		if err != nil {
			return errors.Join(out.Flush(), err)
		}
		parser.Parse(b)
		for i := range b.Records[:min(len(b.Records), dryRunDocuments-printed)] {
			out.Printf("%s\n", describe(b, i))
			printed++
			if b.Records[i].Problem == nil {
				valid++
			}
		}
	}
	warnOfFields(env, in)
	err = out.Flush()
	if printed > 0 && valid == 0 {
		err = errors.Join(err, fmt.Errorf("all of the first %d records are invalid; correct them or the options that name fields", printed))
	}
	return err
}

// describe describes the stored form of a record.
func describe(b *ingest.Batch, i int) string {
	r := &b.Records[i]
	switch {
	case r.Problem != nil:
		return fmt.Sprintf("%s: invalid: %v", b.Place(i), r.Problem)
	case r.Delete:
		return fmt.Sprintf("%q is deleted", r.ID)
	case !r.Expires.IsZero():
		return fmt.Sprintf("%q until %s: %s", r.ID, r.Expires.UTC().Format(time.RFC3339), r.Document)
	}
	return fmt.Sprintf("%q: %s", r.ID, r.Document)
}
