package ingest

import (
	"cmp"
	"fmt"
	"runtime"
	"sync"

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
			parser := NewParser(p.parsing)
			for b := range p.unparsed {
				p.parse(parser, b)
				b.parsed <- struct{}{}
			}
		})
	}
	return func() {
		close(p.unparsed)
		running.Wait()
	}
}

// Parsing states how the records of a source become documents.
type Parsing struct {
	Options *records.Options // nil selects the defaults
	Fields  *records.Fields  // changes documents, after their ids were read; nil: no field
}

// Uses reports whether a top-level field of a record is needed.
func (p Parsing) Uses(name string) bool { return p.Fields.Uses(name, p.Options) }

// Parser parses batches. It is used by one goroutine.
type Parser struct{ of []sourceParser }

// sourceParser parses the records of one source.
type sourceParser struct {
	*records.Parser
	fields *records.Fields
}

// NewParser returns a parser of the batches of a source, given its Options.Parsing.
func NewParser(of []Parsing) *Parser {
	parser := &Parser{make([]sourceParser, len(of))}
	for i, p := range of {
		parser.of[i] = sourceParser{records.NewParser(p.Options), cmp.Or(p.Fields, new(records.Fields))}
	}
	return parser
}

// Parse replaces the records without id by the entries that they request, and changes the
// fields of documents. It sets Problem of those that are invalid.
func (p *Parser) Parse(b *Batch) {
	of := &p.of[b.Source]
	for i := range b.Records {
		r := &b.Records[i]
		if r.Problem == nil {
			r.Problem = of.parse(r)
		}
	}
}

// simpleID returns the id of a record that parse would leave as it is, or refuse; nil: it is not
// known, or the record has its id.
func (p *sourceParser) simpleID(r *Record) []byte {
	if r.Problem != nil || len(r.ID) > 0 || !p.fields.None() {
		return nil
	}
	return p.SimpleID(r.Document)
}

// parse leaves the record as it is if it returns an error.
func (p *sourceParser) parse(r *Record) (err error) {
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
