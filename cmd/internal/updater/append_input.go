package updater

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"docstore/cmd/internal/cli"
	"docstore/ingest"
	"docstore/ingest/files"
	"docstore/ingest/records"
	"docstore/ingest/sources"
)

// addTransformFlags adds the flags that change documents.
func (o *appendOptions) addTransformFlags(flags *pflag.FlagSet) {
	t := &o.transform
	flags.StringVar(&t.IDPath, "id", "", "field that holds a document's id, nested with dots, such as item.sku; instead of --id-field")
	flags.StringVar(&t.IDTemplate, "id-template", "", "id of several fields, such as {country}-{item.number}; instead of --id-field")
	flags.StringVar(&t.Encoding, "encoding", "", "encoding of the text: "+strings.Join(encodingNames(), ", "))
	flags.StringSliceVar(&t.Columns, "columns", nil, "names of the columns of csv and tsv, instead of those in the first row: NAME[,NAME...]")
	flags.BoolVar(&o.header, "header", true, "csv and tsv have a row of names; false: the first row is a document, and --columns has the names")
	flags.StringVar(&t.Delimiter, "delimiter", "", `character between the cells of csv, or \t; the default is a comma`)
	flags.BoolVar(&t.TypedCells, "typed-cells", false, "make cells numbers, true, false and null if they are written so, and null if they are empty")
	flags.StringSliceVar(&t.Keep, "keep", nil, "top-level fields to keep in documents: NAME[,NAME...]; default all")
	flags.StringSliceVar(&t.Drop, "drop", nil, "top-level fields to remove from documents: NAME[,NAME...]")
	flags.StringSliceVar(&o.rename, "rename", nil, "top-level fields to rename: OLD=NEW[,OLD=NEW...]")
}

// encodingNames returns the values of --encoding.
func encodingNames() (names []string) {
	for _, encoding := range records.Encodings() {
		names = append(names, string(encoding))
	}
	return names
}

// completeTransform completes the changes of documents by the flags that have another form;
// idFieldGiven says that --id-field was given.
func (o *appendOptions) completeTransform(idFieldGiven bool) error {
	t := &o.transform
	t.PlainFields, t.NoHeader = !o.controlFields, !o.header
	if idFieldGiven {
		t.IDField = o.idField
	}
	t.Rename = map[string]string{}
	var problems []error
	for _, pair := range o.rename {
		old, name, found := strings.Cut(pair, "=")
		if _, twice := t.Rename[old]; twice || !found {
			problems = append(problems, cli.Usagef("--rename: %s: write OLD=NEW, each OLD once", pair))
			continue
		}
		t.Rename[old] = name
	}
	if o.timeField != "" {
		var err error
		if o.eventTime, err = records.ParseTimeField(o.timeField); err != nil {
			problems = append(problems, cli.Usagef("--time-field: %v", err))
		}
	}
	return errors.Join(append(problems, t.Check("--", records.Format(o.format)))...)
}

// openInput checks the arguments before anything is appended.
func (o *appendOptions) openInput(ctx context.Context, env *cli.Env, args []string) (*sources.Input, error) {
	options := sources.Options{
		Format: records.Format(o.format), Follow: o.follow, Transform: o.transform, ParquetBytes: int64(o.parquetMemory), Stdin: env.Stdin,
		Store: o.store, DryRun: o.dryRun, Whole: o.replace, Prefix: "--", Logger: env.Log,
	}
	if o.from == "" {
		if slices.Index(args, files.StandardInput) != lastIndex(args, files.StandardInput) {
			return nil, cli.Usagef("standard input is given twice (arguments %s)", args)
		}
		return sources.OpenFiles(args, options)
	}
	if len(args) > 0 {
		return nil, cli.Usagef("--from and files (%s) are given; give one of them", args[0])
	}
	in, err := sources.Open(ctx, o.from, options)
	if errors.Is(err, sources.ErrOptions) {
		err = cli.Usagef("%w", err)
	}
	return in, err
}

func lastIndex(args []string, arg string) int {
	for i, a := range slices.Backward(args) {
		if a == arg {
			return i
		}
	}
	return -1
}

// warnOfPipes logs which inputs cannot be resumed.
func warnOfPipes(env *cli.Env, in *sources.Input) {
	for _, name := range in.Pipes {
		env.Log.Warn("a pipe cannot be resumed: after a crash its writer must resend unflushed records, "+
			"and some may be appended twice", "input", name)
	}
}

// warnOfFields logs which fields no document had: their options have no effect, for example because
// they are nested or misspelled.
func warnOfFields(env *cli.Env, in *sources.Input) {
	for _, p := range in.Parsing {
		if names := p.Fields.Missing(); len(names) > 0 {
			env.Log.Warn("no document of this run has these top-level fields, which are to be kept, dropped or renamed", "fields", names)
		}
	}
}

// openSource opens the source behind a cursor; empty: at the start.
func openSource(ctx context.Context, env *cli.Env, in *sources.Input, cursor []byte) (ingest.Source, error) {
	if len(cursor) > 0 {
		position, err := in.Opener.Position(cursor)
		if err != nil {
			return nil, err
		}
		env.Log.Info("resuming", "behind", fmt.Sprint(position))
	}
	return in.Opener.Open(ctx, cursor)
}

// totalBytes returns the size of a source that knows it, else 0.
func totalBytes(from ingest.Source) int64 {
	if sized, ok := from.(interface{ TotalBytes() int64 }); ok {
		return sized.TotalBytes()
	}
	return 0
}
