package e2e

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/internal/jobs"
)

// corpusPath is the path of the real records, relative to this package.
var corpusPath = filepath.Join("..", "..", "..", "shared", "debian-packages.ndjson.gz")

// generatedDocuments is the number of generated job postings used if the file is absent.
const generatedDocuments = 63_666

// document is one input line and the id in it.
type document struct {
	id   string
	line []byte
}

// corpusOnce caches the corpus.
var corpusOnce struct {
	sync.Once
	documents []document
}

// corpus returns the documents to serve, each id once. Callers must not modify them.
func corpus(t testing.TB) []document {
	t.Helper()
	corpusOnce.Do(func() { corpusOnce.documents = readCorpus(t) })
	require.NotEmpty(t, corpusOnce.documents, "an earlier test failed to read the corpus")
	return corpusOnce.documents
}

func readCorpus(t testing.TB) []document {
	t.Helper()
	file, err := os.Open(corpusPath)
	if os.IsNotExist(err) {
		t.Logf("%s is absent: %d made-up job postings instead", corpusPath, generatedDocuments)
		return generated(t)
	}
	require.NoError(t, err)
	defer file.Close()
	unzipped, err := gzip.NewReader(file)
	require.NoError(t, err)

	var documents []document
	lines := bufio.NewScanner(unzipped)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		documents = append(documents, parse(t, bytes.Clone(lines.Bytes())))
	}
	require.NoError(t, lines.Err())
	return documents
}

func generated(t testing.TB) []document {
	t.Helper()
	postings := jobs.New(1)
	documents := make([]document, generatedDocuments)
	for i := range documents {
		documents[i] = parse(t, postings.Next())
	}
	return documents
}

func parse(t testing.TB, line []byte) document {
	t.Helper()
	var fields struct{ ID string }
	require.NoError(t, json.Unmarshal(line, &fields))
	require.NotEmpty(t, fields.ID)
	return document{id: fields.ID, line: line}
}

// ndjson joins documents into the input format of the updater.
func ndjson(documents []document) []byte {
	var buffer bytes.Buffer
	for _, d := range documents {
		buffer.Write(d.line)
		buffer.WriteByte('\n')
	}
	return buffer.Bytes()
}
