package sources

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"unicode/utf8"

	"docstore/ingest"
	"docstore/ingest/files"
	"docstore/ingest/records"
	"docstore/queue"
)

// Transform states how records become documents. At most one of IDField, IDPath and IDTemplate
// is given.
type Transform struct {
	IDField    string // top-level field that holds the id; the default is "id"
	IDPath     string // field that holds the id, nested with dots: item.sku
	IDTemplate string // id of several fields: {country}-{item.number}
	// PlainFields disables control fields: see records.Options.
	PlainFields bool
	Encoding    string // one of records.Encodings; the default is the first
	Delimiter   string // between the cells of csv, or \t; the default is a comma
	// Columns, NoHeader and TypedCells are those of records.Options.
	Columns    []string
	NoHeader   bool
	TypedCells bool
	// Keep, Drop and Rename change the fields of documents: see records.Fields.
	Keep, Drop []string
	Rename     map[string]string
}

// compiled is a valid Transform.
type compiled struct {
	parsing  ingest.Parsing
	idOption string // the name of the option that was given for the id; empty: none
}

// Check returns all invalid options. prefix is before their names in messages.
func (t *Transform) Check(prefix string, format records.Format) error {
	_, err := t.compile(prefix, t.IDField != "", format)
	return err
}

// compile sets the defaults and checks Transform.
func (o *Options) compile() (err error) {
	o.Format = cmp.Or(o.Format, records.FormatAuto)
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	o.transform, err = o.Transform.compile(o.Prefix, o.Transform.IDField != "", o.Format)
	return err
}

// compile reports all invalid options. idFieldGiven says that IDField is an option for this source.
func (t *Transform) compile(prefix string, idFieldGiven bool, format records.Format) (compiled, error) {
	var problems []error
	refuse := func(name string, err error) {
		if err != nil {
			problems = append(problems, invalid("%s%s: %w", prefix, name, err))
		}
	}
	if given := count(idFieldGiven, t.IDPath != "", t.IDTemplate != ""); given > 1 {
		problems = append(problems, invalid("%sid-field, %[1]sid and %[1]sid-template contradict each other; give one of them", prefix))
	}
	options := &records.Options{IDField: t.IDField, PlainFields: t.PlainFields, MaxIDBytes: queue.MaxIDBytes, TypedCells: t.TypedCells}
	result := compiled{parsing: ingest.Parsing{Options: options}}
	var err error
	switch {
	case t.IDPath != "":
		result.idOption = "id"
		options.Template, err = records.ParsePath(t.IDPath)
	case t.IDTemplate != "":
		result.idOption = "id-template"
		options.Template, err = records.ParseTemplate(t.IDTemplate)
	case idFieldGiven:
		result.idOption = "id-field"
	}
	refuse(result.idOption, err)
	if result.idOption != "" && files.OfDirectories(format) {
		refuse(result.idOption, errors.New("the id of a file is its path"))
	}
	refuse("encoding", t.checkEncoding(format))
	options.Encoding = records.Encoding(t.Encoding)
	if t.Delimiter != "" {
		options.Delimiter, err = parseDelimiter(t.Delimiter, format)
		refuse("delimiter", err)
	}
	if !slices.Contains([]records.Format{records.FormatAuto, records.FormatCSV, records.FormatTSV}, format) {
		for _, option := range t.cellOptions() {
			refuse(option, fmt.Errorf("only csv and tsv have cells, not %s", format))
		}
	}
	if t.Columns != nil {
		refuse("columns", records.CheckColumns(t.Columns))
	} else if t.NoHeader {
		refuse("header", fmt.Errorf("without a row of names give them with %scolumns", prefix))
	}
	options.Columns, options.NoHeader = t.Columns, t.NoHeader
	result.parsing.Fields = &records.Fields{Keep: t.Keep, Drop: t.Drop, Rename: t.Rename}
	if err := result.parsing.Fields.Check(); err != nil {
		problems = append(problems, invalid("%skeep, %[1]sdrop, %[1]srename: %w", prefix, err))
	}
	return result, errors.Join(problems...)
}

// fileOptions returns the names of the options that concern files.
func (t *Transform) fileOptions() (names []string) {
	if t.Encoding != "" {
		names = append(names, "encoding")
	}
	if t.Delimiter != "" {
		names = append(names, "delimiter")
	}
	return append(names, t.cellOptions()...)
}

// cellOptions returns the names of the options that concern tables, except the delimiter.
func (t *Transform) cellOptions() (names []string) {
	if t.Columns != nil {
		names = append(names, "columns")
	}
	if t.NoHeader {
		names = append(names, "header")
	}
	if t.TypedCells {
		names = append(names, "typed-cells")
	}
	return names
}

func (t *Transform) checkEncoding(format records.Format) error {
	if t.Encoding != "" && (format == files.Parquet || files.OfDirectories(format)) {
		return fmt.Errorf("only ndjson, json, csv and tsv have an encoding, not %s", format)
	}
	return records.Encoding(t.Encoding).Check()
}

func parseDelimiter(text string, format records.Format) (rune, error) {
	text = strings.ReplaceAll(text, `\t`, "\t")
	r, size := utf8.DecodeRuneInString(text)
	switch {
	case size != len(text):
		return 0, errors.New(text + ": write one character")
	case format != records.FormatAuto && format != records.FormatCSV:
		return 0, fmt.Errorf("only csv has a delimiter, not %s", format)
	}
	return r, records.CheckDelimiter(r)
}

// count returns how many are true.
func count(given ...bool) (n int) {
	for _, g := range given {
		if g {
			n++
		}
	}
	return n
}
