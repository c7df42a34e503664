package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestDocumentsAreValidAndDifferent: derived documents are JSON with other ids, other sums and the
// same names.
func TestDocumentsAreValidAndDifferent(t *testing.T) {
	const sum = "d943033bedada21853d2ae54a2578a7b"
	file := filepath.Join(t.TempDir(), "lines.ndjson")
	require.NoError(t, os.WriteFile(file, []byte(
		`{"id": "a=1", "description": "strategy games of\nancient caf\u00e9s", "description_md5": "`+sum+`"}`+"\n"+
			`{"id": "b=2", "description": "libraries"}`+"\n"), 0o600))
	d, err := readDocuments(file)
	require.NoError(t, err)
	seen := map[string]bool{}
	for n := range 100 {
		line := d.append(nil, n)
		var fields map[string]string
		require.NoError(t, json.Unmarshal(line, &fields), "%s", line)
		require.Equal(t, string(d.appendID(nil, n)), fields["id"])
		require.Contains(t, fields, "description")
		require.NotEqual(t, sum, fields["description_md5"])
		require.Equal(t, line, d.append(nil, n))
		seen[fields["id"]] = true
	}
	require.Len(t, seen, 100)
}
