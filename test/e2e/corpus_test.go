package e2e

import (
	"bytes"
	"encoding/json"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/internal/jobs"
)

// corpusDocuments is the number of documents.
const corpusDocuments = 63_666

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
	corpusOnce.Do(func() { corpusOnce.documents = generate(t) })
	require.NotEmpty(t, corpusOnce.documents, "an earlier test failed to generate the corpus")
	return corpusOnce.documents
}

func generate(t testing.TB) []document {
	t.Helper()
	postings := jobs.New(1)
	documents := make([]document, corpusDocuments)
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
