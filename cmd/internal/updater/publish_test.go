package updater

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/cmd/internal/cli"
)

func TestPublishAndRestore(t *testing.T) {
	root := t.TempDir()
	dir, input := filepath.Join(root, "queue"), filepath.Join(root, "input")
	url := "file://" + filepath.Join(root, "bucket")
	lines := []string{`{"id":"a"}`, `{"id":"b"}`, `{"id":"c"}`, `{"id":"d"}`}
	ingest := func(dir string, count int) {
		t.Helper()
		write(t, input, strings.Join(lines[:count], "\n")+"\n")
		ok(t, "", "append", "--queue", dir, "--codec", "none", "--resume", "--quiet", input)
		ok(t, "", "seal", "--queue", dir)
	}
	var states []string
	for n := 1; n <= 3; n++ {
		ingest(dir, n)
		states = append(states, dump(t, dir))
		require.Contains(t, ok(t, "", "publish", "--queue", dir, "--bucket", url, "--quiet").stdout, "manifest "+string(rune('0'+n))+": ")
	}
	require.Contains(t, ok(t, "", "publish", "--queue", dir, "--bucket", url).stdout, "manifest 3 has all sealed segments already\n")

	require.Len(t, strings.Split(strings.TrimSpace(ok(t, "", "manifests", "--bucket", url).stdout), "\n"), 4)
	var last manifestLine
	jsonLines := strings.Split(strings.TrimSpace(ok(t, "", "manifests", "--bucket", url, "--json").stdout), "\n")
	require.NoError(t, json.Unmarshal([]byte(jsonLines[2]), &last))
	require.EqualValues(t, 3, last.Number)
	require.EqualValues(t, 3, last.Documents)

	second := filepath.Join(root, "second")
	require.Contains(t, ok(t, "", "restore", "--bucket", url, "--queue", second, "--to", "2", "--quiet").stdout, "manifest 2 restored into "+second)
	require.Equal(t, states[1], dump(t, second))
	ok(t, "", "check", "--queue", second)

	// The ingest host is lost: the restored queue continues.
	newest := filepath.Join(root, "newest")
	ok(t, "", "restore", "--bucket", url, "--queue", newest, "--quiet")
	require.Equal(t, states[2], dump(t, newest))
	ingest(newest, 4)
	require.Contains(t, ok(t, "", "publish", "--queue", newest, "--bucket", url, "--quiet").stdout, "manifest 4: ")
	require.Equal(t, strings.Join(lines, "\n")+"\n", dump(t, newest))

	for _, refusal := range []struct {
		args []string
		want string
	}{
		{[]string{"publish", "--queue", dir, "--bucket", url}, "it is an older copy"},
		{[]string{"publish", "--queue", filepath.Join(root, "none"), "--bucket", url}, "no queue in"},
		{[]string{"restore", "--bucket", url, "--queue", dir}, "give a new or empty directory"},
		{[]string{"restore", "--bucket", url, "--queue", filepath.Join(root, "fifth"), "--to", "5"}, "the newest is 4"},
		{[]string{"manifests", "--bucket", "file://" + filepath.Join(root, "empty")}, "no manifests"},
	} {
		r := run(t.Context(), nil, refusal.args...)
		require.Equal(t, cli.ExitFailure, r.status, refusal.args)
		require.Contains(t, r.lastLine(), refusal.want)
	}

	files, err := filepath.Glob(filepath.Join(root, "bucket", "file", "*"))
	require.NoError(t, err)
	content, err := os.ReadFile(files[0])
	require.NoError(t, err)
	content[len(content)/2] ^= 1
	require.NoError(t, os.WriteFile(files[0], content, 0o600))
	r := run(t.Context(), nil, "restore", "--bucket", url, "--queue", filepath.Join(root, "damaged"))
	require.Equal(t, cli.ExitFailure, r.status)
	require.Contains(t, r.lastLine(), "is damaged")
}

// TestAppendPublishes appends with --publish, while the store fails and works again.
func TestAppendPublishes(t *testing.T) {
	root := t.TempDir()
	dir, store := filepath.Join(root, "queue"), filepath.Join(root, "store")
	url := "file://" + filepath.Join(store, "bucket")
	publishing := func(document string) result {
		input := filepath.Join(root, "input")
		write(t, input, document+"\n")
		return run(t.Context(), nil, "append", "--queue", dir, "--publish", url, "--quiet", input)
	}
	r := publishing(`{"id":"a"}`)
	require.Equal(t, cli.ExitFailure, r.status)
	require.Contains(t, r.lastLine(), "create its parent directory")
	require.NoError(t, os.Mkdir(store, 0o755))
	require.Equal(t, cli.ExitOK, publishing(`{"id":"b"}`).status)
	require.Len(t, strings.Split(strings.TrimSpace(ok(t, "", "manifests", "--bucket", url, "--json").stdout), "\n"), 1)

	// Another process takes over; the next append takes over again.
	ok(t, "", "publish", "--queue", dir, "--bucket", url, "--quiet")
	require.Equal(t, cli.ExitOK, publishing(`{"id":"c"}`).status)
	ok(t, "", "restore", "--bucket", url, "--queue", filepath.Join(root, "restored"), "--quiet")
	require.Equal(t, dump(t, dir), dump(t, filepath.Join(root, "restored")))

	// The objects are gone: the queue is complete, and append names the missing object.
	require.NoError(t, os.RemoveAll(filepath.Join(store, "bucket")))
	require.NoError(t, os.WriteFile(filepath.Join(store, "bucket"), nil, 0o600))
	r = publishing(`{"id":"d"}`)
	require.Equal(t, cli.ExitFailure, r.status)
	require.Contains(t, dump(t, dir), `{"id":"c"}`)
}
