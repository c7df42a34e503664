package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"slices"
	"strings"

	"docstore/bench/internal/files"
)

// corpus has the documents of a run: those of a file, or generated ones, which need no memory.
type corpus struct {
	ids   []string // of a file
	lines [][]byte
	sums  []uint64 // of lines
	made  int      // number of generated documents; 0: those of a file
}

// seed is the seed of the sums.
var seed = maphash.MakeSeed()

// add adds a document of a file.
func (c *corpus) add(id string, line []byte) {
	c.ids, c.lines, c.sums = append(c.ids, id), append(c.lines, bytes.Clone(line)), append(c.sums, maphash.Bytes(seed, line))
}

func (c *corpus) size() int {
	if c.made > 0 {
		return c.made
	}
	return len(c.ids)
}

// madeID is the format of the id of a generated document.
const madeID = "job-%010d"

func (c *corpus) id(n int) string {
	if c.made > 0 {
		return fmt.Sprintf(madeID, n)
	}
	return c.ids[n]
}

// number returns the number of the document with an id.
func (c *corpus) number(id string) (n int, ok bool) {
	if c.made > 0 {
		_, err := fmt.Sscanf(id, madeID, &n)
		return n, err == nil && n >= 0 && n < c.made
	}
	n = slices.Index(c.ids, id)
	return n, n >= 0
}

// One in verifyMade generated documents is verified: generating it again costs as much as fetching
// it.
const verifyMade = 64

// isDocument reports whether got is document n. spare is a buffer to generate it again. For documents
// of a file a 64-bit sum is compared: cache misses of reading the line would take longer than the
// fetch.
func (c *corpus) isDocument(n int, got []byte, spare *[]byte) bool {
	if c.made == 0 {
		return maphash.Bytes(seed, got) == c.sums[n]
	}
	*spare = c.line((*spare)[:0], n)
	return bytes.Equal(got, *spare)
}

// bytes returns the size of all documents, of generated ones approximately.
func (c *corpus) bytes() (total float64) {
	for _, line := range c.lines {
		total += float64(len(line))
	}
	return total + float64(c.made)*madeBytes
}

// line appends document n to dst.
func (c *corpus) line(dst []byte, n int) []byte {
	if c.made == 0 {
		return append(dst, c.lines[n]...)
	}
	return appendMade(dst, n)
}

// each calls fn for all documents in order. line is valid until fn returns.
func (c *corpus) each(fn func(id string, line []byte) error) error {
	var line []byte
	for n := range c.size() {
		line = c.line(line[:0], n)
		if err := fn(c.id(n), line); err != nil {
			return err
		}
	}
	return nil
}

// words of generated documents. As in real documents a few are frequent.
var words = strings.Fields(`the and of to in for with you our team work experience will be are
	we as is on your that role skills this years manage develop customer support business design data
	project services sales engineering software systems quality health care training benefits schedule
	location salary hourly overtime remote hybrid position responsibilities requirements qualifications
	preferred degree communication environment opportunity employer equal`)

// madeBytes is the approximate size of a generated document.
const madeBytes = 1000

// appendMade appends generated document n, which is always the same.
func appendMade(dst []byte, n int) []byte {
	random := rand.New(rand.NewPCG(uint64(n), 7))
	start := len(dst)
	dst = fmt.Appendf(dst, `{"id":"job-%010d","company":"company %d","city":"city %d","salary":%d,"text":"`,
		n, random.IntN(20_000), random.IntN(3_000), 20_000+random.IntN(100_000))
	for len(dst)-start < madeBytes-3 {
		// The product of two numbers makes the first words frequent.
		word := words[random.IntN(len(words))*random.IntN(len(words))/len(words)]
		dst = append(append(dst, word...), ' ')
	}
	return append(dst, `"}`...)
}

// readCorpus reads NDJSON, gzipped or not.
func readCorpus(name string) (*corpus, error) {
	c := &corpus{}
	return c, files.Lines(name, func(line []byte) error {
		var fields struct{ ID string }
		if err := json.Unmarshal(line, &fields); err != nil {
			return err
		}
		c.add(fields.ID, line)
		return nil
	})
}
