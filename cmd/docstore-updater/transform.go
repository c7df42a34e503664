package main

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spf13/pflag"

	"docstore/cmd/internal/cli"
	"docstore/ingest/files"
	"docstore/ingest/records"
)

// transformation are the flags of append that change documents, and its result.
type transformation struct {
	idPath     string
	idTemplate string
	delimiter  string
	typedCells bool
	keep, drop []string
	rename     []string
	renamed    map[string]string // of a file of sources, instead of rename

	idOption string            // the name of the option that was given for the id; empty: none
	template *records.Template // nil: the id is in --id-field
	comma    rune              // 0: the default
	fields   records.Fields
}

func (t *transformation) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&t.idPath, "id", "", "field that holds a document's id, nested with dots, such as item.sku; instead of --id-field")
	flags.StringVar(&t.idTemplate, "id-template", "", "id of several fields, such as {country}-{item.number}; instead of --id-field")
	flags.StringVar(&t.delimiter, "delimiter", "", `character between the cells of csv, or \t; the default is a comma`)
	flags.BoolVar(&t.typedCells, "typed-cells", false, "make cells numbers, true, false and null if they are written so, and null if they are empty")
	flags.StringSliceVar(&t.keep, "keep", nil, "top-level fields to keep in documents: NAME[,NAME...]; default all")
	flags.StringSliceVar(&t.drop, "drop", nil, "top-level fields to remove from documents: NAME[,NAME...]")
	flags.StringSliceVar(&t.rename, "rename", nil, "top-level fields to rename: OLD=NEW[,OLD=NEW...]")
}

// check reports all invalid options and computes the result. prefix is that of their names,
// and idFieldGiven says that --id-field was given.
func (t *transformation) check(prefix string, idFieldGiven bool, format string) error {
	var problems []error
	refuse := func(name string, err error) {
		if err != nil {
			problems = append(problems, cli.Usagef("%s%s: %w", prefix, name, err))
		}
	}
	if given := count(idFieldGiven, t.idPath != "", t.idTemplate != ""); given > 1 {
		problems = append(problems, cli.Usagef("%sid-field, %[1]sid and %[1]sid-template contradict each other; give one of them", prefix))
	}
	var err error
	t.idOption, t.template, t.comma = "", nil, 0
	switch {
	case t.idPath != "":
		t.idOption = "id"
		t.template, err = records.ParsePath(t.idPath)
	case t.idTemplate != "":
		t.idOption = "id-template"
		t.template, err = records.ParseTemplate(t.idTemplate)
	case idFieldGiven:
		t.idOption = "id-field"
	}
	refuse(t.idOption, err)
	if t.idOption != "" && format == string(files.Directories) {
		refuse(t.idOption, errors.New("the id of a file is its path"))
	}
	if t.delimiter != "" {
		refuse("delimiter", t.setComma(format))
	}
	if t.typedCells && !slices.Contains([]records.Format{records.FormatAuto, records.FormatCSV, records.FormatTSV}, records.Format(format)) {
		refuse("typed-cells", errors.New("only csv and tsv have cells, not "+format))
	}
	t.fields = records.Fields{Keep: t.keep, Drop: t.drop, Rename: maps.Clone(t.renamed)}
	if t.fields.Rename == nil {
		t.fields.Rename = map[string]string{}
	}
	for _, pair := range t.rename {
		old, name, found := strings.Cut(pair, "=")
		if _, twice := t.fields.Rename[old]; twice || !found {
			refuse("rename", errors.New(pair+": write OLD=NEW, each OLD once"))
			continue
		}
		t.fields.Rename[old] = name
	}
	if err := t.fields.Check(); err != nil {
		problems = append(problems, cli.Usagef("%skeep, %[1]sdrop, %[1]srename: %w", prefix, err))
	}
	return errors.Join(problems...)
}

func (t *transformation) setComma(format string) error {
	text := strings.ReplaceAll(t.delimiter, `\t`, "\t")
	r, size := utf8.DecodeRuneInString(text)
	switch {
	case size != len(text):
		return errors.New(t.delimiter + ": write one character")
	case format != string(records.FormatAuto) && format != string(records.FormatCSV):
		return errors.New("only csv has a delimiter, not " + format)
	}
	t.comma = r
	return records.CheckDelimiter(r)
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
