// Command httpget serves the documents of NDJSON files over HTTP from a map, under the path and
// with the headers of docserviced: the least that a server of package net/http spends for a
// document. bench/README.md compares docserviced with it.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"strconv"
	"strings"
)

const path = "/documents/jobs/"

// maxDocumentBytes is that of the queue.
const maxDocumentBytes = 16 << 20

func main() {
	address := flag.String("http", "127.0.0.1:7081", "address")
	flag.Parse()
	documents := map[string][]byte{}
	for _, name := range flag.Args() {
		if err := read(documents, name); err != nil {
			log.Fatal(err)
		}
	}
	if len(documents) == 0 {
		log.Fatal("httpget: give files of records, as docstore-updater append reads them")
	}
	log.Fatal(http.ListenAndServe(*address, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		document, ok := documents[strings.TrimPrefix(r.URL.Path, path)]
		if !ok {
			http.NotFound(w, r)
			return
		}
		header := w.Header()
		header.Set("Accept-Ranges", "bytes")
		header.Set("Cache-Control", "no-cache")
		header.Set("Content-Length", strconv.Itoa(len(document)))
		header.Set("Content-Type", "application/json")
		header.Set("Etag", `"1-1234567-12-0123abcd"`)
		header.Set("Vary", "Accept-Encoding")
		header.Set("X-Content-Type-Options", "nosniff")
		_, _ = w.Write(document) // the client may have disconnected
	})))
}

// read adds the lines of a file, by their field id.
func read(documents map[string][]byte, name string) error {
	file, err := os.Open(name)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }() // it was only read
	for lines := bufio.NewReaderSize(file, maxDocumentBytes); ; {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil
		}
		var record struct{ ID string }
		if err == nil {
			err = json.Unmarshal(line, &record)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		documents[record.ID] = line[:len(line)-1]
	}
}
