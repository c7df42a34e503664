package updater

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/cmd/internal/cli"
)

// appended appends standard input and returns the dump.
func appended(t *testing.T, input string, args ...string) string {
	t.Helper()
	queueDir := filepath.Join(t.TempDir(), "queue")
	ok(t, input, append([]string{"append", "--queue", queueDir}, args...)...)
	return dump(t, queueDir)
}

func TestTransformations(t *testing.T) {
	const lines = `{"id":"x","a":{"b":7},"c":"d"}` + "\n" + `{"a":{"b":"8"},"c":"e","_delete":true}` + "\n"
	require.Contains(t, appended(t, lines, "--id", "a.b"), `{"id":"7","_document":{`)
	require.Contains(t, appended(t, lines, "--id-template", "{c}:{a.b}"), `{"id":"e:8","_delete":true}`)
	require.Equal(t, `{"id":"x","z":"d"}`+"\n", appended(t, lines[:31], "--drop", "a", "--rename", "c=z"))
	require.Equal(t, `{"id":"x"}`+"\n", appended(t, lines[:31], "--keep", "id"))
	require.Equal(t, `{"id":"1","n":2.5,"e":null}`+"\n", appended(t, "id;n;e\n1;2.5;\n", "--format", "csv", "--delimiter", ";", "--typed-cells"))
	require.Equal(t, `{"id":"1","n":"2"}`+"\n", appended(t, "id\tn\n1\t2\n", "--format", "csv", "--delimiter", `\t`))

	// A document that cannot be changed is an invalid record.
	queueDir := filepath.Join(t.TempDir(), "queue")
	r := run(t.Context(), strings.NewReader(`{"id":"1","a":1,"b":2}`), "append", "--queue", queueDir, "--rename", "a=b")
	require.Equal(t, cli.ExitFailure, r.status)
	require.Contains(t, r.lastLine(), `standard input:1: duplicate field "b"; correct it`)
}

func TestDryRun(t *testing.T) {
	queueDir := filepath.Join(t.TempDir(), "queue")
	input := `{"id":"1","a":1}` + "\n" + `{"id":"2","_delete":true}` + "\nbad\n" + `{"id":"\u00e9","_expires":"2030-01-01T00:00:00Z"}` + "\n" +
		strings.Repeat(`{"id":"x"}`+"\n", 20)
	r := ok(t, input, "append", "--queue", queueDir, "--dry-run", "--drop", "a")
	require.Equal(t, `"1": {"id":"1"}`+"\n"+`"2" is deleted`+"\n"+"standard input:3: invalid: not JSON: byte 1 is 'b' where a value should be\n"+
		`"é" until 2030-01-01T00:00:00Z: {"id":"\u00e9","_expires":"2030-01-01T00:00:00Z"}`+"\n"+strings.Repeat(`"x": {"id":"x"}`+"\n", 6), r.stdout)
	require.NoDirExists(t, queueDir)
	require.Empty(t, ok(t, "", "append", "--queue", queueDir, "--dry-run").stdout)
}

// TestDryRunOfInvalidRecords: it fails if no record is valid.
func TestDryRunOfInvalidRecords(t *testing.T) {
	queueDir := filepath.Join(t.TempDir(), "queue")
	r := run(t.Context(), strings.NewReader(`{"sku":"1"}`+"\nbad\n"), "append", "--queue", queueDir, "--dry-run")
	require.Equal(t, cli.ExitFailure, r.status)
	require.Contains(t, r.stdout, "standard input:1: invalid: ")
	require.Contains(t, r.lastLine(), "all of the first 2 records are invalid")
	ok(t, `{"sku":"1"}`+"\nbad\n", "append", "--queue", queueDir, "--dry-run", "--id", "sku")
}

// TestFieldsThatNoDocumentHas: options that had no effect are reported.
func TestFieldsThatNoDocumentHas(t *testing.T) {
	const lines = `{"id":"1","a":1,"c":{"d":2}}` + "\n" + `{"id":"2","b":1}` + "\n"
	for _, dry := range []string{"--dry-run=false", "--dry-run"} {
		reported := func(input string, args ...string) string {
			queueDir := filepath.Join(t.TempDir(), "queue")
			return ok(t, input, append([]string{"append", "--quiet", "--queue", queueDir, dry}, args...)...).stderr
		}
		require.Contains(t, reported(lines, "--drop", "a,A,c.d", "--rename", "b=x,e=y"), `"fields":["A","c.d","e"]`)
		require.Empty(t, reported(lines, "--drop", "a", "--rename", "b=x"))
		require.Empty(t, reported("", "--drop", "a"), "there are no documents")
		require.Empty(t, reported(`{"id":"1","_delete":true}`, "--drop", "a"), "there are no documents")
		require.Contains(t, reported("id,n\n1,2\n", "--format", "csv", "--keep", "id,m"), `"fields":["m"]`)
	}
}

func TestRate(t *testing.T) {
	started := time.Now()
	appended(t, strings.Repeat(`{"id":"x"}`+"\n", 21), "--rate", "1000")
	require.GreaterOrEqual(t, time.Since(started), 15*time.Millisecond)
}
