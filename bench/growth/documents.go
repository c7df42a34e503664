package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"

	"docstore/bench/internal/files"
)

// documents derives any number of documents from the lines of a file: document n is line n, starting
// over at the end, with another id, other hexadecimal sums, and one word in eight from another line.
type documents struct {
	lines [][]byte
	words [][]byte
}

// idPrefix begins each line.
const idPrefix = `{"id": "`

// leastSumBytes is the minimum length of a hexadecimal sum, leastWordBytes that of a replaced word.
const (
	leastSumBytes  = 32
	leastWordBytes = 5
)

func readDocuments(name string) (*documents, error) {
	d := &documents{}
	return d, files.Lines(name, func(line []byte) error {
		if !bytes.HasPrefix(line, []byte(idPrefix)) {
			return fmt.Errorf("want lines that begin with %s", idPrefix)
		}
		line = bytes.Clone(line)
		d.lines = append(d.lines, line)
		eachWord(line[len(idPrefix):], func(_, word []byte) {
			if isReplaceable(word) {
				d.words = append(d.words, word)
			}
		}, func([]byte) {})
		return nil
	})
}

// appendID appends the id of document n.
func (d *documents) appendID(dst []byte, n int) []byte {
	id, _, _ := bytes.Cut(d.lines[n%len(d.lines)][len(idPrefix):], []byte{'"'})
	return fmt.Appendf(append(dst, id...), "~%d", n/len(d.lines))
}

// append appends document n.
func (d *documents) append(dst []byte, n int) []byte {
	var source rand.PCG
	source.Seed(uint64(n), 1)
	dst = d.appendID(append(dst, idPrefix...), n)
	_, rest, _ := bytes.Cut(d.lines[n%len(d.lines)][len(idPrefix):], []byte{'"'})
	dst = append(dst, '"')
	eachWord(rest, func(before, word []byte) {
		dst = append(dst, before...)
		switch {
		case len(word) >= leastSumBytes:
			for range word {
				dst = append(dst, "0123456789abcdef"[source.Uint64()>>60])
			}
		case isReplaceable(word) && source.Uint64()%8 == 0:
			dst = append(dst, d.words[source.Uint64()%uint64(len(d.words))]...)
		default:
			dst = append(dst, word...)
		}
	}, func(rest []byte) { dst = append(dst, rest...) })
	return dst
}

func isReplaceable(word []byte) bool {
	if len(word) < leastWordBytes || len(word) >= leastSumBytes {
		return false
	}
	for _, c := range word {
		if c < 'a' {
			return false
		}
	}
	return true
}

// eachWord calls fn for each run of small letters and digits that is not part of the name of a JSON
// member, with the bytes since the previous run, and then end with the rest.
func eachWord(text []byte, fn func(before, word []byte), end func(rest []byte)) {
	from := 0
	for at := 0; at < len(text); {
		start := at
		for at < len(text) && (text[at] >= 'a' && text[at] <= 'z' || text[at] >= '0' && text[at] <= '9') {
			at++
		}
		if at == start {
			at += escapeBytes(text[at:])
			continue
		}
		if name := text[at:]; !bytes.HasPrefix(name, []byte{'_'}) && !bytes.HasPrefix(name, []byte(`": `)) {
			fn(text[from:start], text[start:at])
			from = at
		}
	}
	end(text[from:])
}

// escapeBytes returns the length of the escape sequence, or single byte, at the start of text.
func escapeBytes(text []byte) int {
	switch {
	case text[0] != '\\':
		return 1
	case bytes.HasPrefix(text, []byte(`\u`)):
		return 6
	}
	return 2
}

// write writes the documents from, from+1, ... to-1, a line each, and closes the writer.
func (d *documents) write(w io.WriteCloser, from, to int) (err error) {
	out := bufio.NewWriterSize(w, 1<<20)
	var line []byte
	for n := from; n < to && err == nil; n++ {
		line = append(d.append(line[:0], n), '\n')
		_, err = out.Write(line)
	}
	return errors.Join(err, out.Flush(), w.Close())
}
