package main

import (
	"fmt"
	"runtime"
	"sync"

	"docstore/cmd/internal/records"
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
			parser := records.NewParser(p.options)
			for b := range p.unparsed {
				b.parse(parser)
				b.parsed <- struct{}{}
			}
		})
	}
	return func() {
		close(p.unparsed)
		running.Wait()
	}
}

// parse parses the batch's records.
func (b *batch) parse(parser *records.Parser) {
	for i := range b.items {
		it := &b.items[i]
		it.at.Tail = tailOf(it.text)
		if it.problem == nil {
			it.entry, it.problem = parseDocument(parser, it.text)
		}
	}
}

func parseDocument(parser *records.Parser, text []byte) (records.Entry, error) {
	entry, err := parser.Parse(text)
	if err == nil && len(entry.Document) > queue.MaxDocumentBytes {
		err = tooLarge(int64(len(entry.Document)))
	}
	return entry, err
}

func tooLarge(bytes int64) error {
	return fmt.Errorf("the document has %d bytes, and at most %d are allowed", bytes, queue.MaxDocumentBytes)
}
