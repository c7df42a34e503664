package main

import (
	"context"
	"fmt"
	"slices"

	"docstore/cmd/internal/cli"
	"docstore/ingest"
	"docstore/ingest/files"
	"docstore/ingest/records"
	"docstore/queue"
)

// inputSource is the source that append reads.
type inputSource struct {
	opener ingest.Opener
	name   string
	ends   bool     // see ingest.Batch; before the first batch
	pipes  []string // inputs without cursor
	// parsing is that of each source: see ingest.Batch.
	parsing []ingest.Parsing
}

// openInput checks the arguments before anything is appended.
func (o *appendOptions) openInput(ctx context.Context, env *cli.Env, args []string) (*inputSource, error) {
	from := &fromOptions{flags: o, format: records.Format(o.format), parsing: o.parsing(&o.transform), log: env.Log}
	if o.transform.idOption != "" {
		from.idOption = "--" + o.transform.idOption
	}
	if o.from != "" {
		if len(args) > 0 {
			return nil, cli.Usagef("--from and files (%s) are given; give one of them", args[0])
		}
		return openFrom(ctx, o.from, from)
	}
	if slices.Index(args, files.StandardInput) != lastIndex(args, files.StandardInput) {
		return nil, cli.Usagef("standard input is given twice (arguments %s)", args)
	}
	options := from.files()
	options.Stdin = env.Stdin
	opener, err := files.NewOpener(args, options)
	if err != nil {
		return nil, err
	}
	return &inputSource{opener: opener, name: opener.Name(), ends: opener.Ends(), pipes: opener.Pipes(), parsing: []ingest.Parsing{from.parsing}}, nil
}

func lastIndex(args []string, arg string) int {
	for i, a := range slices.Backward(args) {
		if a == arg {
			return i
		}
	}
	return -1
}

// parsing states how the records of a source become documents.
func (o *appendOptions) parsing(t *transformation) ingest.Parsing {
	options := &records.Options{
		IDField: o.idField, PlainFields: !o.controlFields, MaxIDBytes: queue.MaxIDBytes,
		Template: t.template, Delimiter: t.comma, TypedCells: t.typedCells,
	}
	return ingest.Parsing{Options: options, Fields: &t.fields}
}

// warnOfPipes logs which inputs cannot be resumed.
func (in *inputSource) warnOfPipes(env *cli.Env) {
	for _, name := range in.pipes {
		env.Log.Warn("a pipe cannot be resumed: after a crash its writer must resend unflushed records, "+
			"and some may be appended twice", "input", name)
	}
}

// warnOfFields logs which fields no document had: their options have no effect, for example because
// they are nested or misspelled.
func (in *inputSource) warnOfFields(env *cli.Env) {
	for _, p := range in.parsing {
		if names := p.Fields.Missing(); len(names) > 0 {
			env.Log.Warn("no document of this run has these top-level fields, which are to be kept, dropped or renamed", "fields", names)
		}
	}
}

// open opens the source behind a cursor; empty: at the start.
func (in *inputSource) open(ctx context.Context, env *cli.Env, cursor []byte) (ingest.Source, error) {
	if len(cursor) > 0 {
		position, err := in.opener.Position(cursor)
		if err != nil {
			return nil, err
		}
		env.Log.Info("resuming", "behind", fmt.Sprint(position))
	}
	return in.opener.Open(ctx, cursor)
}

// totalBytes returns the size of a source that knows it, else 0.
func totalBytes(from ingest.Source) int64 {
	if sized, ok := from.(interface{ TotalBytes() int64 }); ok {
		return sized.TotalBytes()
	}
	return 0
}
