package updater

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/cmd/internal/cli"
)

// No queue is created in a directory with other files.
func TestQueueDirectoryMustBeEmpty(t *testing.T) {
	dir := t.TempDir()
	input := write(t, filepath.Join(dir, "input"), a1+"\n")
	r := run(t.Context(), nil, "append", "--queue", dir, input)
	require.Equal(t, cli.ExitFailure, r.status)
	require.Equal(t, "docstore-updater: "+dir+" is not a queue and contains other files, for example input; give the directory of a queue, or an empty or new one\n", r.stderr)
	require.NoFileExists(t, filepath.Join(dir, "LOCK"))

	mounted := filepath.Join(dir, "mounted")
	for _, name := range []string{"lost+found", ".sync"} {
		require.NoError(t, os.MkdirAll(filepath.Join(mounted, name), 0o777))
	}
	ok(t, "", "append", "--queue", mounted, input)
	write(t, filepath.Join(mounted, "notes"), "of the operator")
	ok(t, "", "append", "--queue", mounted, input)
}

// Dump finds the id in another field than "id", and does not write such documents in
// base64.
func TestDumpFindsTheIDField(t *testing.T) {
	const packages = `{"Package":"curl","Source":"curl","Version":"8"}` + "\n" + `{"Package":"libc6","Source":"glibc"}` + "\n" + `{"Package":"zip","Source":"zip"}` + "\n"
	for name, c := range map[string]struct{ lines, idField, want, says string }{
		"another field":      {packages, "Package", packages, `"id_field":"Package"`},
		"a number":           {`{"n":17,"x":1}` + "\n", "n", `{"n":17,"x":1}` + "\n", `"id_field":"n"`},
		"two fields":         {`{"a":"1","b":"1"}` + "\n", "a", `{"id":"1","_document":{"a":"1","b":"1"}}` + "\n", ""},
		"id, and another":    {`{"id":"1","b":"1"}` + "\n", "id", `{"id":"1","b":"1"}` + "\n", ""},
		"a delete is no aid": {`{"a":"1","_delete":true}` + "\n", "a", `{"id":"1","_delete":true}` + "\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			queueDir, again := t.TempDir(), t.TempDir()
			ok(t, c.lines, "append", "--queue", queueDir, "--id-field", c.idField)
			r := ok(t, "", "dump", "--queue", queueDir)
			require.Equal(t, c.want, r.stdout)
			if c.says == "" {
				require.Empty(t, r.stderr)
				return
			}
			require.Contains(t, r.stderr, c.says)
			ok(t, r.stdout, "append", "--queue", again, "--id-field", c.idField)
			require.Equal(t, r.stdout, dump(t, again))
			require.NotEqual(t, c.want, dump(t, queueDir, "--id-field", "id"), "an explicit --id-field is used")
		})
	}
}
