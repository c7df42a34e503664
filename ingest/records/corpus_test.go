package records

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/ulikunitz/xz"

	"docstore/internal/eof"
	"docstore/internal/testseed"
)

// corpusFormats write documents in each format.
var corpusFormats = map[string]func(documents []string) string{
	"a.ndjson":       func(documents []string) string { return strings.Join(documents, "\n") },
	"crlf.ndjson":    func(documents []string) string { return strings.Join(documents, "\r\n") + "\r\n" },
	"mark.json":      func(documents []string) string { return "\ufeff [" + strings.Join(documents, " ,\n") + "]\n" },
	"newline.csv":    func(documents []string) string { return tableOf(documents, ",", "\n") },
	"crlf.csv":       func(documents []string) string { return "\ufeff" + tableOf(documents, ",", "\r\n") },
	"return.csv":     func(documents []string) string { return tableOf(documents, ",", "\r") },
	"tab.tsv":        func(documents []string) string { return tableOf(documents, "\t", "\n") },
	"return.tab.tsv": func(documents []string) string { return tableOf(documents, "\t", "\r") },
}

// tableOf writes documents with the fields id and x.
func tableOf(documents []string, comma, end string) string {
	var text strings.Builder
	text.WriteString("id" + comma + "x" + end)
	for _, document := range documents {
		var fields struct{ ID, X string }
		if err := json.Unmarshal([]byte(document), &fields); err != nil {
			panic(err) // the test wrote it
		}
		text.WriteString(fields.ID + comma + `"` + strings.ReplaceAll(fields.X, `"`, `""`) + `"` + end)
	}
	return text.String()
}

// corpusCompressions compress a text in the forms that programs write; parts are the lengths at
// which a file that is cut is a complete one.
func corpusCompressions(t *testing.T) map[string]func(text string) (file string, parts []int) {
	all := map[string]func(string) (string, []int){
		"gzip":         func(text string) (string, []int) { return gzipped(text), nil },
		"gzip members": func(text string) (string, []int) { return joined(text, gzipped, "") },
		"gzip padded": func(text string) (string, []int) {
			file := gzipped(text)
			var parts []int
			for n := range 100 {
				parts = append(parts, len(file)+n)
			}
			return file + string(make([]byte, 100)), parts
		},
		"zstd":        func(text string) (string, []int) { return zstded(text), nil },
		"zstd frames": func(text string) (string, []int) { return joined(text, zstded, "") },
		"pzstd":       func(text string) (string, []int) { return joined(text, zstded, skippable(0, "abcd")) },
		"xz": func(text string) (string, []int) {
			return xzed(t, text, xz.WriterConfig{BlockSize: 100, DictCap: 1 << 16}), nil
		},
		"xz streams": func(text string) (string, []int) {
			return joined(text, func(part string) string { return xzed(t, part, xz.WriterConfig{DictCap: 1 << 16}) }, "")
		},
	}
	return all
}

// joined compresses the halves of a text as two members, each behind a prefix.
func joined(text string, compress func(string) string, prefix string) (file string, parts []int) {
	first := prefix + compress(text[:len(text)/2])
	return first + prefix + compress(text[len(text)/2:]), []int{len(prefix), len(first), len(first) + len(prefix)}
}

// readDocuments reads the documents of a file as append does: an invalid record is an error.
func readDocuments(file []byte, name string) (documents []string, err error) {
	s, err := Open(bytes.NewReader(file), name, FormatAuto, testLimit, nil)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	parser := NewParser(nil)
	for {
		record, err := s.Next()
		if eof.Is(err) {
			return documents, nil
		}
		if err == nil {
			err = record.Problem
		}
		if err == nil {
			_, err = parser.Parse(record.Text)
		}
		if err != nil {
			return documents, fmt.Errorf("record %d: %w", len(documents)+1, err)
		}
		documents = append(documents, strings.TrimSuffix(string(record.Text), "\r"))
	}
}

// TestCorpus reads each format in each compression, whole and damaged: a file that is cut, or
// has a changed byte, is an error or has the documents that it was made of.
func TestCorpus(t *testing.T) {
	random := testseed.Rand(t)
	var documents []string
	for i := range 40 {
		var x strings.Builder
		for range random.IntN(30) {
			x.WriteString([]string{"a", "é", ",", "\n", `"`, "\t", " ", "0"}[random.IntN(8)])
		}
		text, err := json.Marshal(x.String())
		require.NoError(t, err)
		documents = append(documents, fmt.Sprintf(`{"id":"%d","x":%s}`, i, text))
	}
	compressions := corpusCompressions(t)
	for name, write := range corpusFormats {
		text := write(documents)
		got, err := readDocuments([]byte(text), name)
		require.NoError(t, err, name)
		require.Equal(t, documents, got, name)
		for compression, compress := range compressions {
			file, parts := compress(text)
			got, err := readDocuments([]byte(file), name)
			require.NoError(t, err, "%s, %s", name, compression)
			require.Equal(t, documents, got, "%s, %s", name, compression)
			complete := map[int]bool{0: true}
			for _, n := range parts {
				complete[n] = true
			}
			for range 10 {
				at := random.IntN(len(file))
				if _, err := readDocuments([]byte(file[:at]), name); err == nil {
					require.True(t, complete[at], "%s, %s: cut to %d of %d bytes without an error", name, compression, at, len(file))
				}
				damaged := []byte(file)
				damaged[at] ^= byte(1 + random.IntN(255))
				if got, err := readDocuments(damaged, name); err == nil {
					require.Equal(t, documents, got, "%s, %s: byte %d of %d was changed", name, compression, at, len(file))
				}
			}
		}
	}
}

// TestCorpusOfBzip2 changes each byte of a file, and cuts it at each.
func TestCorpusOfBzip2(t *testing.T) {
	file, err := os.ReadFile("testdata/lines.bz2")
	require.NoError(t, err)
	whole, err := readLines(file)
	require.NoError(t, err)
	require.Equal(t, []string{"a", "b"}, whole)
	for at := 1; at < len(file); at++ {
		if got, err := readLines(file[:at]); err == nil {
			require.Less(t, at, bzip2MagicBytes, "cut to %d bytes without an error: %q", at, got)
		}
		for bit := range 8 {
			damaged := bytes.Clone(file)
			damaged[at] ^= 1 << bit
			if got, err := readLines(damaged); err == nil && isBzip2(damaged) {
				require.Equal(t, whole, got, "byte %d was changed", at)
			}
		}
	}
}

func readLines(file []byte) (lines []string, err error) {
	s, err := Open(bytes.NewReader(file), "in", FormatNDJSON, testLimit, nil)
	if err != nil {
		return nil, err
	}
	for {
		record, err := s.Next()
		if eof.Is(err) {
			return lines, s.Close()
		}
		if err != nil {
			return lines, errors.Join(err, s.Close())
		}
		lines = append(lines, string(record.Text))
	}
}
