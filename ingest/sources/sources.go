package sources

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"

	"docstore/ingest"
	"docstore/ingest/files"
	"docstore/ingest/kafka"
	"docstore/ingest/nats"
	"docstore/ingest/postgres"
	"docstore/ingest/records"
	"docstore/queue/bucket"
)

// Options are the options of sources. Those of a list can have others.
type Options struct {
	// Format is that of files, one of files.Formats; the default is records.FormatAuto.
	Format records.Format
	// Follow keeps reading the last file, stream or table as it grows.
	Follow    bool
	Transform Transform
	// ParquetBytes bounds the memory of a row group of Parquet; 0: see files.Options.
	ParquetBytes int64
	Stdin        io.Reader      // of OpenFiles
	Store        bucket.Options // of s3://
	// DryRun refuses a source that reading changes.
	DryRun bool
	// Whole refuses a source that delivers changes, and not the whole state of a collection.
	Whole bool
	// Prefix is before the names of options in messages: "--" if they are flags.
	Prefix string
	Logger *slog.Logger // the default discards

	transform compiled
}

// Input is a source that can be opened.
type Input struct {
	Opener  ingest.Opener
	Name    string
	Pipes   []string // the inputs without cursor
	Parsing []ingest.Parsing
}

// ErrOptions matches errors of options and URLs, unlike those of files and servers.
var ErrOptions = errors.New("invalid options")

type optionsError struct{ error }

func (e *optionsError) Is(target error) bool { return target == ErrOptions }
func (e *optionsError) Unwrap() error        { return e.error }

// invalid returns an error that matches ErrOptions.
func invalid(format string, args ...any) error { return &optionsError{fmt.Errorf(format, args...)} }

// refuse returns the error of a URL.
func (o *Options) refuse(url, format string, args ...any) error {
	return invalid("%sfrom %s: %w", o.Prefix, url, fmt.Errorf(format, args...))
}

// OpenFiles checks the names of files and directories, and opens nothing. No name means standard
// input.
func OpenFiles(names []string, o Options) (*Input, error) {
	if err := o.compile(); err != nil {
		return nil, err
	}
	options := o.files()
	options.Stdin = o.Stdin
	opener, err := files.NewOpener(names, options)
	if err != nil {
		return nil, err
	}
	return &Input{Opener: opener, Name: opener.Name(), Pipes: opener.Pipes(), Parsing: []ingest.Parsing{o.transform.parsing}}, nil
}

// Open checks a URL, or the list of sources in a .yaml file; see the package comment. It sends
// no request.
func Open(ctx context.Context, from string, o Options) (*Input, error) {
	if err := o.compile(); err != nil {
		return nil, err
	}
	if strings.Contains(from, "://") {
		if i := schemeOf(from); i >= 0 && !schemes[i].tables {
			if options := o.Transform.fileOptions(); len(options) > 0 {
				return nil, invalid("%s%s is for files, not for %s://", o.Prefix, options[0], schemes[i].name)
			}
		}
		opener, err := openURL(ctx, from, &o)
		if err != nil {
			return nil, err
		}
		return &Input{Opener: opener, Name: from, Parsing: []ingest.Parsing{o.transform.parsing}}, nil
	}
	if !strings.HasSuffix(from, ".yaml") && !strings.HasSuffix(from, ".yml") {
		return nil, invalid("%sfrom %s: write a URL (%s) or the name of a .yaml file", o.Prefix, from, strings.Join(Forms(), ", "))
	}
	return openList(ctx, from, &o)
}

// scheme is a kind of source that a URL names.
type scheme struct {
	name   string // kafka
	url    string // form of the URL, for messages: kafka://HOST:PORT/TOPIC
	tables bool   // it may have tables: csv, tsv
	// stateful says that reading changes the source, so that Options.DryRun refuses it.
	stateful bool
	// changes says that the source delivers changes: see Options.Whole.
	changes bool
	// open checks the URL and returns the opener, which sends no request before Open.
	open func(ctx context.Context, url string, o *Options) (ingest.Opener, error)
}

// schemes are the kinds of sources.
var schemes = []scheme{
	{name: "file", url: "file:///DIRECTORY/PATTERN", tables: true, open: openFileURL},
	{name: "kafka", url: kafkaForm, changes: true, open: openKafkaURL},
	{name: "postgres", url: postgresForm, stateful: true, open: openPostgres},
	{name: "nats", url: natsForm, changes: true, open: openNATSURL},
	{name: "s3", url: "s3://BUCKET/PATTERN", tables: true, open: openS3URL},
}

// refuseID refuses an option for the id if documents do not contain it. The explanation is that
// of the source.
func (o *Options) refuseID(explanation string) error {
	if o.transform.idOption == "" {
		return nil
	}
	return invalid("%s%s: %s", o.Prefix, o.transform.idOption, explanation)
}

// files returns the options of files and objects.
func (o *Options) files() files.Options {
	return files.Options{
		Format: o.Format, Follow: o.Follow, Records: o.transform.parsing.Options,
		ParquetBytes: o.ParquetBytes, Columns: o.transform.parsing.Uses,
	}
}

// Forms returns the forms of URLs, for help texts.
func Forms() (urls []string) {
	for _, s := range schemes {
		urls = append(urls, s.url)
	}
	return urls
}

// schemeOf returns the index of a URL's scheme, -1 if it is unknown.
func schemeOf(url string) int {
	name, _, _ := strings.Cut(url, "://")
	return slices.IndexFunc(schemes, func(s scheme) bool { return s.name == name })
}

func openURL(ctx context.Context, url string, o *Options) (ingest.Opener, error) {
	i := schemeOf(url)
	name, _, _ := strings.Cut(url, "://")
	if i < 0 {
		return nil, invalid("unknown kind of source %s://; want %s", name, strings.Join(Forms(), ", "))
	}
	if o.DryRun && schemes[i].stateful {
		return nil, invalid("%sdry-run cannot read %s://: reading changes the source", o.Prefix, name)
	}
	if o.Whole && schemes[i].changes {
		return nil, invalid("%sreplace cannot read %s://: it delivers changes, not the whole state of a collection", o.Prefix, name)
	}
	return schemes[i].open(ctx, url, o)
}

// Describe describes a cursor that append has stored in a queue: the place in the source after a
// record. It is empty for the start, and for a cursor of another program or of several sources.
func Describe(cursor []byte) string {
	if len(cursor) == 0 {
		return ""
	}
	for _, describe := range []func([]byte) (string, error){files.Describe, kafka.Describe, nats.Describe, postgres.Describe} {
		if text, err := describe(cursor); err == nil {
			return text
		}
	}
	return ""
}
