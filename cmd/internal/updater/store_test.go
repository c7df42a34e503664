package updater

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/cmd/internal/cli"
)

// TestInvalidEtcdFlag: another scheme, a target without prefix, and neither --etcd nor --queue.
func TestInvalidEtcdFlag(t *testing.T) {
	url := "file://" + filepath.Join(t.TempDir(), "bucket")
	for _, args := range [][]string{
		{"announce", "--etcd", "http://127.0.0.1:2379"},
		{"manifests", "--etcd", "etcd://127.0.0.1:2379"},
		{"restore"},
	} {
		r := run(t.Context(), nil, append(args, "--bucket", url)...)
		require.Equal(t, cli.ExitUsage, r.status, args)
		require.Contains(t, r.lastLine(), "etcd")
	}
}

func TestVerifyPublishedObjects(t *testing.T) {
	root := t.TempDir()
	dir, url := filepath.Join(root, "queue"), "file://"+filepath.Join(root, "bucket")
	ok(t, `{"id":"1"}`+"\n", "append", "--queue", dir, "--quiet")
	ok(t, "", "seal", "--queue", dir)
	r := run(t.Context(), nil, "manifests", "--verify", "--bucket", url)
	require.Equal(t, cli.ExitFailure, r.status)
	require.Contains(t, r.lastLine(), "holds no collection")
	ok(t, "", "publish", "--queue", dir, "--bucket", url, "--quiet")
	require.Contains(t, ok(t, "", "manifests", "--verify", "--bucket", url).stdout, "2 commits, 1 manifest, 1 file")
	require.Regexp(t, `^\{\s+"commits": 2,\s+"manifests": 1,\s+"files": 1,\s+"bytes": \d+,\s+"problems": \[\]\s+\}\n$`,
		ok(t, "", "manifests", "--verify", "--json", "--bucket", url).stdout)
}
