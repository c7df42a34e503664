package main

import (
	"fmt"
	"runtime"
	"sync"

	"docstore/ingest"
	"docstore/ingest/records"
	"docstore/queue"
)

// maxParsers is the maximum number of parser goroutines: more would outpace the single
// goroutine that appends.
const maxParsers = 4

// startParsers starts the parsers. The function that it returns ends the input and waits
// for them.
func (p *producer) startParsers() (stop func()) {
	var running sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), maxParsers) {
		running.Go(func() {
			parsers := newParsers(p.parsing)
			for b := range p.unparsed {
				b.parse(parsers)
				b.parsed <- struct{}{}
			}
		})
	}
	return func() {
		close(p.unparsed)
		running.Wait()
	}
}

// parser parses the records of one source.
type parser struct {
	*records.Parser
	fields *records.Fields
}

// newParsers returns the parsers of one goroutine.
func newParsers(of []parsing) []parser {
	parsers := make([]parser, len(of))
	for i, p := range of {
		parsers[i] = parser{records.NewParser(p.options), p.fields}
	}
	return parsers
}

// parse replaces the records without id by the entries that they request, and changes the
// fields of documents.
func (b *batch) parse(parsers []parser) {
	p := &parsers[b.Source]
	for i := range b.Records {
		r := &b.Records[i]
		if r.Problem == nil {
			r.Problem = p.parse(r)
		}
	}
}

// parse leaves the record as it is if it returns an error.
func (p *parser) parse(r *ingest.Record) (err error) {
	entry := records.Entry{ID: r.ID, Document: r.Document, Delete: r.Delete, Expires: r.Expires}
	if len(r.ID) == 0 {
		if entry, err = p.Parse(r.Document); err != nil {
			return err
		}
	}
	if !entry.Delete && !p.fields.None() {
		if entry.Document, err = p.fields.Apply(entry.Document); err != nil {
			return err
		}
	}
	if len(entry.Document) > queue.MaxDocumentBytes {
		return fmt.Errorf("the document has %d bytes, and at most %d are allowed", len(entry.Document), queue.MaxDocumentBytes)
	}
	r.ID, r.Document, r.Delete, r.Expires = entry.ID, entry.Document, entry.Delete, entry.Expires
	return nil
}
