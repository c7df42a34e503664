package main

import (
	"context"
	"fmt"
	"os"
	"slices"

	"go.yaml.in/yaml/v3"

	"docstore/ingest"
	"docstore/ingest/files"
	"docstore/ingest/merged"
	"docstore/ingest/records"
)

// maxFromFileBytes bounds the size of a file of sources.
const maxFromFileBytes = 1 << 20

// openFromFile opens the sources of a YAML file.
func openFromFile(ctx context.Context, path string, o *fromOptions) (*inputSource, error) {
	info, err := os.Stat(path)
	if err == nil && info.Size() > maxFromFileBytes {
		err = fmt.Errorf("%s has %d bytes, more than %d", path, info.Size(), maxFromFileBytes)
	}
	if err != nil {
		return nil, err
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	file, err := parseFromFile(path, content, o.flags)
	if err != nil {
		return nil, err
	}
	in := &inputSource{name: "the sources of " + path}
	var sources []merged.Named
	for _, entry := range file.sources {
		own := &fromOptions{flags: o.flags, format: records.Format(entry.format), parsing: o.flags.parsing(&entry.transform), idOption: entry.transform.idOption, log: o.log}
		opener, err := openURL(ctx, entry.from, own)
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", path, entry.line, err)
		}
		in.parsing = append(in.parsing, own.parsing)
		sources = append(sources, merged.Named{Name: entry.name, Opener: opener, Ends: ends(opener), Rate: entry.rate})
	}
	opener, err := merged.New(sources, file.removed)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	in.opener, in.ends = opener, opener.Ends()
	return in, nil
}

// fromFile is the content of a file of sources:
//
//	sources:
//	  - name: jobs
//	    from: s3://company-data/jobs/*.csv
//	    delimiter: ;
//	removed: [old-jobs]
type fromFile struct {
	sources []fromEntry
	removed []string
}

// fromEntry is an entry of the list of sources. Its options replace the flags of their names.
type fromEntry struct {
	name, from string
	line       int
	format     string
	transform  transformation
	rate       float64 // records a second; 0: no limit
}

func parseFromFile(path string, content []byte, flags *appendOptions) (file fromFile, err error) {
	var document yaml.Node
	if err := yaml.Unmarshal(content, &document); err != nil {
		return file, fmt.Errorf("%s: %w", path, err)
	}
	if len(document.Content) == 0 {
		return file, fmt.Errorf("%s is empty: want a list \"sources\" of entries with \"name\" and \"from\"", path)
	}
	err = forEachKey(document.Content[0], func(key string, value *yaml.Node) error {
		switch key {
		case "sources":
			file.sources, err = parseEntries(value, flags)
			return err
		case "removed":
			return decode(value, &file.removed, "a list of names")
		}
		return fmt.Errorf("%d: unknown key %q; want sources or removed", value.Line, key)
	})
	if err != nil {
		return file, fmt.Errorf("%s:%w", path, err)
	}
	return file, nil
}

func parseEntries(list *yaml.Node, flags *appendOptions) (entries []fromEntry, err error) {
	if list.Kind != yaml.SequenceNode {
		return nil, fmt.Errorf("%d: want a list of sources", list.Line)
	}
	for _, node := range list.Content {
		entry, err := parseEntry(node, flags)
		if err != nil {
			return nil, err
		}
		entries = append(entries, entry)
	}
	return entries, nil
}

// parseEntry parses an entry of the list of sources.
func parseEntry(node *yaml.Node, flags *appendOptions) (fromEntry, error) {
	entry := fromEntry{line: node.Line, format: flags.format, transform: flags.transform}
	given := map[string]bool{}
	err := forEachKey(node, func(key string, value *yaml.Node) error {
		given[key] = true
		return entry.set(key, value, given)
	})
	if err != nil {
		return entry, err
	}
	scheme := schemeOf(entry.from)
	switch {
	case entry.name == "" || entry.from == "":
		return entry, fmt.Errorf("%d: a source needs name and from", node.Line)
	case scheme >= 0 && !schemes[scheme].tables && (given["format"] || given["delimiter"] || given["typed-cells"]):
		return entry, fmt.Errorf("%d: format, delimiter and typed-cells are for files, not for %s://", node.Line, schemes[scheme].name)
	}
	if err := entry.transform.check("", false, entry.format); err != nil {
		return entry, fmt.Errorf("%d: %w", node.Line, err)
	}
	if !given["id"] && !given["id-template"] {
		entry.transform.idOption = "" // a flag for all sources
	}
	return entry, nil
}

// set sets the value of a key. given are the keys so far.
func (e *fromEntry) set(key string, value *yaml.Node, given map[string]bool) error {
	t := &e.transform
	switch key {
	case "name":
		return decode(value, &e.name, "a name")
	case "from":
		return decode(value, &e.from, "a URL")
	case "format":
		err := decode(value, &e.format, "a format")
		if err == nil && (!slices.Contains(formatNames(), e.format) || e.format == string(files.Directories)) {
			err = fmt.Errorf("%d: unknown format %q", value.Line, e.format)
		}
		return err
	case "id", "id-template":
		if !given["id"] || !given["id-template"] {
			t.idPath, t.idTemplate = "", ""
		}
		if key == "id" {
			return decodeText(value, &t.idPath, "a field")
		}
		return decodeText(value, &t.idTemplate, "a template")
	case "keep", "drop":
		if !given["keep"] || !given["drop"] {
			t.keep, t.drop = nil, nil
		}
		if key == "keep" {
			return decode(value, &t.keep, "a list of fields")
		}
		return decode(value, &t.drop, "a list of fields")
	case "rename":
		t.rename, t.renamed = nil, nil
		return decode(value, &t.renamed, "fields in the form \"old: new\"")
	case "delimiter":
		return decodeText(value, &t.delimiter, "a character")
	case "typed-cells":
		return decode(value, &t.typedCells, "true or false")
	case "rate":
		err := decode(value, &e.rate, "a number")
		if err == nil && (!(e.rate > 0) || e.rate > ingest.MaxRate) {
			err = fmt.Errorf("%d: rate %v: must be above 0 and at most %v a second", value.Line, e.rate, ingest.MaxRate)
		}
		return err
	}
	return fmt.Errorf("%d: unknown key %q; want name, from, format, id, id-template, keep, drop, rename, delimiter, typed-cells or rate", value.Line, key)
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
