package files

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"docstore/ingest"
	"docstore/ingest/records"
	"docstore/internal/vfs"
	"docstore/queue"
)

// Directories is the format of a directory of documents.
const Directories records.Format = "files"

// JSONFiles is the format of a directory of JSON documents, which may be compressed.
const JSONFiles records.Format = "json-files"

// OfDirectories reports whether the inputs of a format are directories.
func OfDirectories(format records.Format) bool { return format == Directories || format == JSONFiles }

// Parquet is the format of Parquet files; see package parquet.
const Parquet records.Format = "parquet"

// StandardInput is the name of standard input.
const StandardInput = "-"

// MaxRecordBytes is the maximum size of a record: a document in base64 with a long id and an
// expiry.
const MaxRecordBytes = (queue.MaxDocumentBytes+2)/3*4 + 2*queue.MaxIDBytes + 1<<10

// Formats returns the supported formats.
func Formats() []records.Format { return append(records.Formats(), Parquet, Directories, JSONFiles) }

// Options configure an Opener.
type Options struct {
	// FS is the file system of regular files. The default is vfs.OS, which also has directories of
	// documents and pipes.
	FS      vfs.FS
	Format  records.Format
	Follow  bool // keep reading the last file as it grows, and the file that replaces it
	Stdin   io.Reader
	Records *records.Options // of the encoding, and of tables
	// ParquetBytes bounds the memory of a row group; 0 is parquet.DefaultMaxBytes.
	ParquetBytes int64
	// Columns reports whether a top-level column of Parquet files is read; nil: all are.
	Columns func(name string) bool
}

func (o *Options) encoding() records.Encoding {
	if o.Records == nil {
		return records.EncodingAuto
	}
	return o.Records.Encoding
}

// Opener opens the inputs at a cursor.
type Opener struct {
	inputs  []*input
	options Options
}

// NewOpener checks every name, so that an error is reported before anything is read. No name
// means standard input.
func NewOpener(names []string, options Options) (*Opener, error) {
	if len(names) == 0 {
		names = []string{StandardInput}
	}
	if options.FS == nil {
		options.FS = vfs.OS
	}
	o := &Opener{options: options}
	for _, name := range names {
		in, err := o.input(name)
		if err != nil {
			return nil, err
		}
		in.index = len(o.inputs)
		o.inputs = append(o.inputs, in)
	}
	if options.Follow {
		return o, o.inputs[len(o.inputs)-1].setFollow()
	}
	return o, nil
}

func (o *Opener) input(name string) (*input, error) {
	if name != StandardInput {
		return inspect(o.options.FS, name, o.options.Format, o.options.encoding())
	}
	if slices.ContainsFunc(o.inputs, func(in *input) bool { return in.stdin }) {
		return nil, errors.New("standard input is given twice")
	}
	if OfDirectories(o.options.Format) || o.options.Format == Parquet {
		return nil, fmt.Errorf("--format %s needs the names of files", o.options.Format)
	}
	return &input{name: "standard input", stdin: true, format: o.options.Format, gen: current}, nil
}

// Name returns the name of the first input.
func (o *Opener) Name() string { return o.inputs[0].name }

// Ends implements ingest.Opener: the first input decides.
func (o *Opener) Ends() bool { return !o.inputs[0].live() }

// Pipes returns the names of the inputs that have no cursor.
func (o *Opener) Pipes() (names []string) {
	for _, in := range o.inputs {
		if !in.stable {
			names = append(names, in.name)
		}
	}
	return names
}

// Open implements ingest.Opener. A pipe has new content each time and is read in any case.
func (o *Opener) Open(ctx context.Context, stored []byte) (ingest.Source, error) {
	p, err := o.position(stored)
	if err != nil {
		return nil, err
	}
	s := newSource(ctx, o.options)
	for i, in := range o.inputs {
		switch {
		case i < p.index && in.stable:
			continue
		case i == p.index && p.old != nil:
			s.inputs = append(append(s.inputs, p.old), p.between...)
		case i == p.index:
			in = p.in
		}
		own := *in // reading changes it
		s.inputs = append(s.inputs, &own)
	}
	s.total = totalBytes(s.inputs)
	return s, nil
}
