package main

import (
	"context"
	"log/slog"
	"slices"
	"strings"

	"docstore/cmd/internal/cli"
	"docstore/ingest"
	"docstore/ingest/files"
	"docstore/ingest/records"
)

// scheme is a kind of source that --from names by a URL.
type scheme struct {
	name   string // kafka
	url    string // form of the URL, for messages: kafka://HOST:PORT/TOPIC
	help   string // about the source, for the help text
	tables bool   // it may have tables: csv, tsv
	// stateful says that reading changes the source, so that --dry-run refuses it.
	stateful bool
	// open checks the URL and returns the opener, which sends no request before Open. An
	// opener with a method "Ends() bool" may end: see ingest.Batch. An invalid URL is a
	// cli.Usagef error.
	open func(ctx context.Context, url string, o *fromOptions) (ingest.Opener, error)
}

// schemes are the sources of --from.
var schemes = []scheme{
	{name: "file", url: "file:///DIRECTORY/PATTERN", help: objectsHelp, tables: true, open: openFileURL},
	{name: "kafka", url: kafkaForm, help: kafkaHelp, open: openKafkaURL},
	{name: "postgres", url: postgresForm, help: postgresHelp, stateful: true, open: openPostgres},
	{name: "nats", url: natsForm, help: natsHelp, open: openNATSURL},
	{name: "s3", url: "s3://BUCKET/PATTERN", tables: true, open: openS3URL},
}

// fromOptions are the options of one source.
type fromOptions struct {
	flags   *appendOptions
	format  records.Format
	parsing ingest.Parsing
	// idOption is the option that was given for the id of this source; empty: none.
	idOption string
	log      *slog.Logger
}

// refuseID refuses an option for the id if documents do not contain it. The explanation is that
// of the source.
func (o *fromOptions) refuseID(explanation string) error {
	if o.idOption == "" {
		return nil
	}
	return cli.Usagef("%s: %s", o.idOption, explanation)
}

// files returns the options of files and objects.
func (o *fromOptions) files() files.Options {
	return files.Options{
		Format: o.format, Follow: o.flags.follow, Records: o.parsing.Options,
		ParquetBytes: int64(o.flags.parquetMemory), Columns: o.parsing.Uses,
	}
}

// schemeURLs returns the forms of URLs, for help texts.
func schemeURLs() (urls []string) {
	for _, s := range schemes {
		urls = append(urls, s.url)
	}
	return urls
}

// schemeHelps returns the paragraphs about sources, for the help text.
func schemeHelps() string {
	var text strings.Builder
	for _, s := range schemes {
		if s.help != "" {
			text.WriteString(s.help + "\n\n")
		}
	}
	return text.String()
}

// openFrom returns the source of --from: a URL, or a YAML file of several.
func openFrom(ctx context.Context, from string, o *fromOptions) (*inputSource, error) {
	if strings.Contains(from, "://") {
		if i, t := schemeOf(from), &o.flags.transform; i >= 0 && !schemes[i].tables && (t.delimiter != "" || t.typedCells) {
			return nil, cli.Usagef("--delimiter and --typed-cells are for files, not for %s://", schemes[i].name)
		}
		opener, err := openURL(ctx, from, o)
		if err != nil {
			return nil, err
		}
		return &inputSource{opener: opener, name: from, ends: ends(opener), parsing: []ingest.Parsing{o.parsing}}, nil
	}
	if !strings.HasSuffix(from, ".yaml") && !strings.HasSuffix(from, ".yml") {
		return nil, cli.Usagef("--from %s: write a URL (%s) or the name of a .yaml file", from, strings.Join(schemeURLs(), ", "))
	}
	return openFromFile(ctx, from, o)
}

// schemeOf returns the index of a URL's scheme, -1 if it is unknown.
func schemeOf(url string) int {
	name, _, _ := strings.Cut(url, "://")
	return slices.IndexFunc(schemes, func(s scheme) bool { return s.name == name })
}

func openURL(ctx context.Context, url string, o *fromOptions) (ingest.Opener, error) {
	i := schemeOf(url)
	name, _, _ := strings.Cut(url, "://")
	if i < 0 {
		return nil, cli.Usagef("unknown kind of source %s://; want %s", name, strings.Join(schemeURLs(), ", "))
	}
	if o.flags.dryRun && schemes[i].stateful {
		return nil, cli.Usagef("--dry-run cannot read %s://: reading changes the source", name)
	}
	return schemes[i].open(ctx, url, o)
}

// ends reports whether a source ends: see ingest.Batch.
func ends(opener ingest.Opener) bool {
	e, ok := opener.(interface{ Ends() bool })
	return ok && e.Ends()
}
