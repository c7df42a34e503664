package e2e

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/internal/freeport"
	"docstore/internal/testprocess"
)

// TestUnitsServe passes documents through the commands of the systemd units of deploy/, on an
// ingest host and a serving machine that are directories.
func TestUnitsServe(t *testing.T) {
	t.Parallel()
	documents := corpus(t)[:3_000]
	ingestHost, server := newMachine(t), newMachine(t)

	ingest := ingestHost.unit(t, "docstore-ingest@.service")
	input := ingestHost.unit(t, "docstore-ingest@.path")["PathChanged"]
	testprocess.Start(t, ingest.command(t)).WaitExit(t) // no input file: it exits
	feed := func(name string, documents []document) {
		t.Helper()
		require.NoError(t, os.WriteFile(filepath.Join(input, "."+name), ndjson(documents), 0o644))
		require.NoError(t, os.Rename(filepath.Join(input, "."+name), filepath.Join(input, name)))
		testprocess.Start(t, ingest.command(t)).WaitExit(t)
	}
	feed("2026-11-21T1430.ndjson", documents[:1_000])

	queue := filepath.Join("var", "lib", "docstore", "queue", collectionName)
	server.write(t, "etc/docstore/sync-"+collectionName, "SOURCE=%s\nOPTIONS=--interval 0.1 --bwlimit 50m\n", filepath.Join(ingestHost.root, queue))
	sync := testprocess.Start(t, server.unit(t, "docstore-sync@.service").command(t))
	d := &daemon{boxcar: freeport.Address(t), http: freeport.Address(t)}
	server.write(t, "etc/docstore/docserviced.yaml", "collection: [%s=%s]\ndata: %s\nboxcar: %s\nhttp: %s\n",
		collectionName, filepath.Join(server.root, queue), filepath.Join(server.root, "var", "lib", "docstore", "index"), d.boxcar, d.http)
	d.Command = testprocess.Start(t, server.unit(t, "docserviced.service").command(t))
	d.waitDocument(t, documents[999].id, documents[999].line)

	feed("2026-11-21T1431.ndjson", documents[1_000:2_000])
	require.NoError(t, os.Remove(filepath.Join(input, "2026-11-21T1430.ndjson"))) // it has been appended
	feed("2026-11-21T1432.ndjson", documents[2_000:])
	last := documents[len(documents)-1]
	d.waitDocument(t, last.id, last.line)
	d.waitReady(t)
	compareAll(t, newClient(t, d), expected(documents))
	sync.Stop(t)
	d.Stop(t)

	dump := exec.Command(filepath.Join(binaries, "docstore-updater"), "dump", "--queue", filepath.Join(server.root, queue))
	out, err := dump.Output()
	require.NoError(t, err)
	require.True(t, bytes.Equal(ndjson(documents), out), "each document once, in order")
}

// The ingest unit appends more files than fit into a command line.
func TestIngestUnitAppendsManyFiles(t *testing.T) {
	t.Parallel()
	const (
		files     = 20_000
		nameBytes = 250
		maxBytes  = 6 << 20 // of the arguments of a process, whatever the limit of its stack
	)
	require.Greater(t, files*nameBytes+files*len("/var/lib/docstore/input/")+files*len(t.TempDir()), maxBytes)
	host := newMachine(t)
	ingest := host.unit(t, "docstore-ingest@.service")
	input := host.unit(t, "docstore-ingest@.path")["PathChanged"]
	for i := range files {
		name := fmt.Sprintf("%0*d.ndjson", nameBytes-len(".ndjson"), i)
		line := ""
		if i%1_000 == 999 {
			line = fmt.Sprintf(`{"id":"%d"}`+"\n", i)
		}
		require.NoError(t, os.WriteFile(filepath.Join(input, name), []byte(line), 0o644))
	}
	testprocess.Start(t, ingest.command(t)).WaitExit(t)
	dump := exec.Command(filepath.Join(binaries, "docstore-updater"), "dump", "--queue", filepath.Join(host.root, "var", "lib", "docstore", "queue", collectionName))
	out, err := dump.Output()
	require.NoError(t, err)
	var want strings.Builder
	for i := 999; i < files; i += 1_000 {
		fmt.Fprintf(&want, `{"id":"%d"}`+"\n", i)
	}
	require.Equal(t, want.String(), string(out))
}

// machine is a directory that represents the root directory of a machine.
type machine struct{ root string }

// newMachine installs the commands.
func newMachine(t *testing.T) machine {
	t.Helper()
	m := machine{t.TempDir()}
	script, err := filepath.Abs(syncScript)
	require.NoError(t, err)
	bin := filepath.Join(m.root, "usr", "local", "bin")
	require.NoError(t, os.MkdirAll(bin, 0o755))
	for name, from := range map[string]string{
		"docstore-sync": script, "docstore-updater": filepath.Join(binaries, "docstore-updater"), "docserviced": filepath.Join(binaries, "docserviced"),
	} {
		require.NoError(t, os.Symlink(from, filepath.Join(bin, name)))
	}
	return m
}

func (m machine) write(t *testing.T, name, format string, args ...any) {
	t.Helper()
	path := filepath.Join(m.root, filepath.FromSlash(name))
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, fmt.Appendf(nil, format, args...), 0o644))
}

// unit is the settings of a unit.
type unit map[string]string

var (
	// ourPaths maps paths in units to paths outside the machine directory.
	ourPaths    = regexp.MustCompile(`/(usr/local/bin|var/lib/docstore|etc/docstore)\b`)
	unitSetting = regexp.MustCompile(`(?m)^([A-Za-z]+)=(.*)$`)
	unitWord    = regexp.MustCompile(`'[^']*'|\S+`)
	unitBraces  = regexp.MustCompile(`\$\{(\w+)\}`)
)

// unit parses a unit as its instance for the collection, maps its paths into the machine, and
// creates the directories that systemd would create.
func (m machine) unit(t *testing.T, name string) unit {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("..", "..", "deploy", "systemd", name))
	require.NoError(t, err)
	text := strings.ReplaceAll(string(content), "\\\n", " ")
	text = strings.ReplaceAll(text, "%i", collectionName)
	state := filepath.Join(m.root, "var", "lib")
	u := unit{}
	for _, setting := range unitSetting.FindAllStringSubmatch(text, -1) {
		u[setting[1]] = ourPaths.ReplaceAllString(setting[2], m.root+"$0")
	}
	for _, dir := range append(strings.Fields(u["StateDirectory"]), ".") {
		require.NoError(t, os.MkdirAll(filepath.Join(state, dir), 0o755))
	}
	return u
}

// command is the command that the unit starts, with quotes and variables expanded as by
// systemd: $NAME is split into words, ${NAME} is not.
func (u unit) command(t *testing.T) *exec.Cmd {
	t.Helper()
	environment := map[string]string{}
	if name := u["EnvironmentFile"]; name != "" {
		content, err := os.ReadFile(name)
		require.NoError(t, err)
		for line := range strings.Lines(string(content)) {
			key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
			environment[key] = value
		}
	}
	var words []string
	for _, word := range unitWord.FindAllString(u["ExecStart"], -1) {
		name, isVariable := strings.CutPrefix(word, "$")
		switch {
		case isVariable && !strings.HasPrefix(name, "{"):
			words = append(words, strings.Fields(environment[name])...)
		default:
			word = unitBraces.ReplaceAllStringFunc(word, func(braces string) string { return environment[braces[2:len(braces)-1]] })
			words = append(words, strings.Trim(word, "'"))
		}
	}
	require.NotEmpty(t, words)
	cmd := exec.Command(words[0], words[1:]...)
	cmd.Env = os.Environ()
	for key, value := range environment {
		cmd.Env = append(cmd.Env, key+"="+value)
	}
	return cmd
}
