package sources

import (
	"context"
	"fmt"
	"os"
	"slices"

	"go.yaml.in/yaml/v3"

	"docstore/ingest"
	"docstore/ingest/files"
	"docstore/ingest/merged"
)

// maxListBytes bounds the size of a list of sources.
const maxListBytes = 1 << 20

// openList opens the sources of a YAML file.
func openList(ctx context.Context, path string, o *Options) (*Input, error) {
	info, err := os.Stat(path)
	if err == nil && info.Size() > maxListBytes {
		err = fmt.Errorf("%s has %d bytes, more than %d", path, info.Size(), maxListBytes)
	}
	if err != nil {
		return nil, err
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	parsed, err := parseList(path, content, o)
	if err != nil {
		return nil, err
	}
	in := &Input{Name: "the sources of " + path}
	var sources []merged.Named
	for _, entry := range parsed.sources {
		opener, err := openURL(ctx, entry.from, &entry.options)
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", path, entry.line, err)
		}
		in.Parsing = append(in.Parsing, entry.options.transform.parsing)
		sources = append(sources, merged.Named{Name: entry.name, Opener: opener, Rate: entry.rate})
	}
	opener, err := merged.New(sources, parsed.removed)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	in.Opener = opener
	return in, nil
}

// list is the content of a list of sources:
//
//	sources:
//	  - name: jobs
//	    from: s3://company-data/jobs/*.csv
//	    delimiter: ;
//	removed: [old-jobs]
type list struct {
	sources []*entry
	removed []string
}

// entry is an entry of a list. Its options replace those of the list.
type entry struct {
	name, from string
	line       int
	options    Options
	rate       float64 // records a second; 0: no limit
}

func parseList(path string, content []byte, o *Options) (parsed list, err error) {
	var document yaml.Node
	if err := yaml.Unmarshal(content, &document); err != nil {
		return parsed, fmt.Errorf("%s: %w", path, err)
	}
	if len(document.Content) == 0 {
		return parsed, fmt.Errorf("%s is empty: want a list \"sources\" of entries with \"name\" and \"from\"", path)
	}
	err = forEachKey(document.Content[0], func(key string, value *yaml.Node) error {
		switch key {
		case "sources":
			parsed.sources, err = parseEntries(value, o)
			return err
		case "removed":
			return decode(value, &parsed.removed, "a list of names")
		}
		return fmt.Errorf("%d: unknown key %q; want sources or removed", value.Line, key)
	})
	if err != nil {
		return parsed, fmt.Errorf("%s:%w", path, err)
	}
	return parsed, nil
}

func parseEntries(list *yaml.Node, o *Options) (entries []*entry, err error) {
	if list.Kind != yaml.SequenceNode {
		return nil, fmt.Errorf("%d: want a list of sources", list.Line)
	}
	for _, node := range list.Content {
		e, err := parseEntry(node, o)
		if err != nil {
			return nil, err
		}
		entries = append(entries, e)
	}
	return entries, nil
}

// parseEntry parses an entry of a list.
func parseEntry(node *yaml.Node, o *Options) (*entry, error) {
	e := &entry{line: node.Line, options: *o}
	e.options.Prefix = ""
	given := map[string]bool{}
	err := forEachKey(node, func(key string, value *yaml.Node) error {
		given[key] = true
		return e.set(key, value, given)
	})
	if err != nil {
		return nil, err
	}
	if e.name == "" || e.from == "" {
		return nil, fmt.Errorf("%d: a source needs name and from", node.Line)
	}
	if scheme := schemeOf(e.from); scheme >= 0 && !schemes[scheme].tables {
		for _, option := range []string{"format", "encoding", "delimiter", "columns", "header", "typed-cells"} {
			if given[option] {
				return nil, fmt.Errorf("%d: %s is for files, not for %s://", node.Line, option, schemes[scheme].name)
			}
		}
	}
	if e.options.transform, err = e.options.Transform.compile("", false, e.options.Format); err != nil {
		return nil, fmt.Errorf("%d: %w", node.Line, err)
	}
	if !given["id"] && !given["id-template"] {
		e.options.transform.idOption = "" // an option for all sources
	}
	return e, nil
}

// set sets the value of a key. given are the keys so far.
func (e *entry) set(key string, value *yaml.Node, given map[string]bool) error {
	t := &e.options.Transform
	switch key {
	case "name":
		return decode(value, &e.name, "a name")
	case "from":
		return decode(value, &e.from, "a URL")
	case "format":
		format := &e.options.Format
		err := decode(value, format, "a format")
		if err == nil && (!slices.Contains(files.Formats(), *format) || files.OfDirectories(*format)) {
			err = fmt.Errorf("%d: unknown format %q", value.Line, *format)
		}
		return err
	case "id", "id-template":
		if !given["id"] || !given["id-template"] {
			t.IDPath, t.IDTemplate = "", ""
		}
		if key == "id" {
			return decodeText(value, &t.IDPath, "a field")
		}
		return decodeText(value, &t.IDTemplate, "a template")
	case "keep", "drop":
		if !given["keep"] || !given["drop"] {
			t.Keep, t.Drop = nil, nil
		}
		if key == "keep" {
			return decode(value, &t.Keep, "a list of fields")
		}
		return decode(value, &t.Drop, "a list of fields")
	case "rename":
		t.Rename = nil
		return decode(value, &t.Rename, "fields in the form \"old: new\"")
	case "encoding":
		return decodeText(value, &t.Encoding, "an encoding")
	case "columns":
		return decode(value, &t.Columns, "a list of names")
	case "header":
		header := true
		err := decode(value, &header, "true or false")
		t.NoHeader = !header
		return err
	case "delimiter":
		return decodeText(value, &t.Delimiter, "a character")
	case "typed-cells":
		return decode(value, &t.TypedCells, "true or false")
	case "rate":
		err := decode(value, &e.rate, "a number")
		if err == nil && (!(e.rate > 0) || e.rate > ingest.MaxRate) {
			err = fmt.Errorf("%d: rate %v: must be above 0 and at most %v a second", value.Line, e.rate, ingest.MaxRate)
		}
		return err
	}
	return fmt.Errorf("%d: unknown key %q; want name, from, format, id, id-template, keep, drop, rename, encoding, delimiter, columns, header, typed-cells or rate", value.Line, key)
}

// forEachKey calls f for the keys of a mapping. Errors begin with the line.
func forEachKey(node *yaml.Node, f func(key string, value *yaml.Node) error) error {
	if node.Kind != yaml.MappingNode {
		return fmt.Errorf("%d: want lines of the form \"key: value\"", node.Line)
	}
	seen := map[string]bool{}
	for i := 0; i < len(node.Content); i += 2 {
		key := node.Content[i]
		if seen[key.Value] {
			return fmt.Errorf("%d: duplicate key %q", key.Line, key.Value)
		}
		seen[key.Value] = true
		if err := f(key.Value, node.Content[i+1]); err != nil {
			return err
		}
	}
	return nil
}

func decode(value *yaml.Node, into any, want string) error {
	if err := value.Decode(into); err != nil || value.Tag == "!!null" {
		return fmt.Errorf("%d: want %s", value.Line, want)
	}
	return nil
}

// decodeText decodes a text that is not empty.
func decodeText(value *yaml.Node, into *string, want string) error {
	err := decode(value, into, want)
	if err == nil && *into == "" {
		err = fmt.Errorf("%d: want %s", value.Line, want)
	}
	return err
}
