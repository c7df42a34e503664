package docserviced

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"

	"github.com/spf13/pflag"

	"docstore/cmd/internal/cli"
	"docstore/cmd/internal/meter"
	"docstore/docservice"
	"docstore/docservice/collection"
	"docstore/docservice/server"
	"docstore/ingest"
	"docstore/ingest/files"
	"docstore/ingest/records"
	"docstore/internal/units"
	"docstore/queue"
	"docstore/queue/shard"
	"docstore/queue/shardset"
)

// dataFlag is set to the temporary directory.
const dataFlag = "data"

// loadedDir is the directory in --data of the queues of --load. It is no name of a collection.
const loadedDir = "_queue"

// loading holds the flags of files that are appended to queues before they are served.
type loading struct {
	values  []string // NAME=FILE
	idField string

	files []server.Collection // parsed values; the source is the file
}

func (l *loading) addFlags(flags *pflag.FlagSet) {
	flags.StringArrayVar(&l.values, "load", nil, "collection to serve, and the file to append to its queue first, as NAME=FILE; repeatable")
	flags.StringVar(&l.idField, "id-field", "id", "top-level field that holds the id of a document in the files of --load")
}

// parse returns the collections of the files, with their queues below a directory. It reports all
// invalid flags, and names that are in seen.
func (l *loading) parse(dataDir string, seen map[string]bool) (collections []server.Collection, err error) {
	l.files, err = parseNamed("--load", "NAME=FILE", l.values, seen)
	if l.idField == "" {
		err = errors.Join(err, cli.Usagef("--id-field is empty; give the name of the field that holds the id"))
	}
	for _, file := range l.files {
		collections = append(collections, server.Collection{Name: file.Name, Source: filepath.Join(dataDir, loadedDir, file.Name)})
	}
	return collections, err
}

// prepare sets --data to a temporary directory if files are loaded and it is not given. remove
// removes that directory.
func (l *loading) prepare(flags *pflag.FlagSet) (remove func() error, err error) {
	if len(l.values) == 0 || flags.Changed(dataFlag) {
		return func() error { return nil }, nil
	}
	dir, err := os.MkdirTemp("", "docstore-")
	if err != nil {
		return nil, err
	}
	return func() error { return os.RemoveAll(dir) }, flags.Set(dataFlag, dir)
}

// load appends the files to their queues, after the records that these have.
func (l *loading) load(ctx context.Context, env *cli.Env, dataDir string, quiet bool) error {
	for _, file := range l.files {
		if err := l.append(ctx, env, filepath.Join(dataDir, loadedDir, file.Name), file.Source, quiet); err != nil {
			return err
		}
	}
	return nil
}

// append appends a file to a queue.
func (l *loading) append(ctx context.Context, env *cli.Env, queueDir, file string, quiet bool) (err error) {
	options := &records.Options{IDField: l.idField, MaxIDBytes: queue.MaxIDBytes}
	opener, err := files.NewOpener([]string{file}, files.Options{Format: records.FormatAuto, Stdin: env.Stdin, Records: options})
	if err != nil {
		return err
	}
	writer, err := shardset.Open(queueDir, &shardset.Options{Layout: shard.Layout{Shards: 1}, Logger: env.Log})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, writer.Close()) }()
	to := &ingest.CatchUp{Writer: writer}
	cursor, err := to.Resume(opener)
	if err != nil {
		return err
	}
	from, err := opener.Open(ctx, cursor)
	if err != nil && cursor != nil {
		env.Log.Info("the file was replaced: its documents replace those of the last run", "reason", err)
		return l.replace(ctx, env, opener, writer, options, queueDir, quiet)
	}
	if err != nil {
		return err
	}
	defer func() { _ = from.Close() }() // it was only read
	var shown *meter.Meter              // nil with --quiet
	if !quiet {
		shown = meter.New(env, "loading "+file, from.(*files.Source).TotalBytes())
	}
	appender := ingest.NewAppender(from, opener.Ends(), to, ingest.Options{
		Queue: queueDir, Parsing: []ingest.Parsing{{Options: options}}, Logger: env.Log,
		Appended: func(at ingest.Progress) { shown.Update(at.Entries(), at.Bytes) },
	})
	err = appender.Run(ctx)
	shown.Finish()
	at := appender.Progress()
	switch {
	case errors.Is(err, ingest.ErrInvalid):
		return cli.Bare(fmt.Errorf("%w; correct it, or append the file with docstore append --skip-bad", err))
	case errors.Is(err, ingest.ErrInterrupted):
		return fmt.Errorf("interrupted before %s was loaded", file)
	case err != nil:
		return err
	case cursor == nil && at.Documents == 0:
		return fmt.Errorf("%s has no documents", file)
	}
	env.Log.Info("loaded", "file", file, "documents", at.Documents, "deletes", at.Deletes, "bytes", at.Bytes)
	return nil
}

// replace makes a queue equal to a file.
func (l *loading) replace(ctx context.Context, env *cli.Env, opener *files.Opener, writer *shardset.Writer, options *records.Options, queueDir string, quiet bool) error {
	from, err := opener.Open(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = from.Close() }() // it was only read
	var shown *meter.Meter              // nil with --quiet
	if !quiet {
		shown = meter.New(env, "loading "+opener.Name(), from.(*files.Source).TotalBytes())
	}
	done, err := ingest.Replace(ctx, from, writer, ingest.ReplaceOptions{
		Dir: queueDir, Parsing: []ingest.Parsing{{Options: options}}, MaxDeletes: 1, Logger: env.Log, Now: env.Now, Read: shown.Update,
	})
	shown.Finish()
	switch {
	case errors.Is(err, ingest.ErrInvalid):
		return cli.Bare(fmt.Errorf("%w; correct it, or give another --data", err))
	case errors.Is(err, ingest.ErrInterrupted):
		return fmt.Errorf("interrupted before %s was loaded", opener.Name())
	case err == nil:
		env.Log.Info("loaded", "file", opener.Name(), "equal", done.Equal, "changed", done.Changed, "added", done.Added, "deleted", done.Deleted)
	}
	return err
}

// show prints where the loaded collections are served, when they are ready.
func (l *loading) show(ctx context.Context, env *cli.Env, s *server.Server) {
	if err := l.print(ctx, env, s); err != nil && ctx.Err() == nil {
		env.Log.Error("the loaded collections cannot be shown", "error", err)
	}
}

func (l *loading) print(ctx context.Context, env *cli.Env, s *server.Server) error {
	out := cli.NewOutput(env.Stdout)
	base := s.HTTPURL(s.HTTPAddress())
	for _, file := range l.files {
		c := s.Collection(file.Name)
		if err := c.WaitReady(ctx); err != nil {
			return err
		}
		count, err := c.Count(ctx, nil)
		if err != nil {
			return err
		}
		out.Printf("%s: %s", file.Name, units.FormatCountOf(count, "document", "documents"))
		err = c.Scan(ctx, docservice.ScanOptions{IDsOnly: true, Limit: 1}, func(id []byte, _ collection.Answer) error {
			out.Printf(", such as %s/documents/%s/%s", base, file.Name, url.PathEscape(string(id)))
			return nil
		})
		if err != nil {
			return err
		}
		out.Printf("\n")
	}
	out.Printf("status: %s/\n", base)
	return out.Flush()
}
