package updater

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/cmd/internal/cli"
)

// TestAnnouncePinAndRollback walks a collection through a bad ingest.
func TestAnnouncePinAndRollback(t *testing.T) {
	root := t.TempDir()
	dir, input, work := filepath.Join(root, "queue"), filepath.Join(root, "input"), filepath.Join(root, "work")
	url := "file://" + filepath.Join(root, "bucket")
	lines := ""
	publishLine := func(line string) {
		t.Helper()
		lines += line + "\n"
		write(t, input, lines)
		ok(t, "", "append", "--queue", dir, "--codec", "none", "--resume", "--quiet", input)
		ok(t, "", "seal", "--queue", dir)
		ok(t, "", "publish", "--queue", dir, "--bucket", url, "--quiet")
	}
	fails := func(want string, args ...string) {
		t.Helper()
		r := run(t.Context(), nil, append(args, "--bucket", url)...)
		require.Equal(t, cli.ExitFailure, r.status, r.stdout)
		require.Contains(t, r.lastLine(), want)
	}
	prints := func(want string, args ...string) {
		t.Helper()
		require.Contains(t, ok(t, "", append(args, "--bucket", url)...).stdout, want)
	}

	for i := range 4 {
		publishLine(fmt.Sprintf(`{"id":"%d"}`, i))
	}
	fails("run validate --to 4", "announce", "--to", "4")
	fails("there is no manifest 0", "announce")
	prints("announced: none; newest: 4\n", "validate", "--to", "3", "--require-id", "2", "--quiet")
	prints("announced: 3; newest: 4\n", "announce")
	fails("run validate --to 4", "announce", "--to", "4")

	// A validator refuses manifest 4; it is never announced.
	fails(`manifest 4 of `+url+` is marked as bad: publish: manifest 4 has no document with id "none"`, "validate", "--queue", work, "--require-id", "none", "--quiet")
	fails("manifest 4 is marked as bad", "announce", "--to", "4")
	fails("manifest 4 is marked as bad", "pin", "--to", "4")
	fails("marked as bad", "validate", "--to", "4", "--queue", work, "--quiet")

	// A program decides.
	publishLine(`{"id":"good"}`)
	program := filepath.Join(root, "program")
	require.NoError(t, os.WriteFile(program, []byte("#!/bin/sh\ntest -e \"$1/0000000005.seg\" && exit 7\n"), 0o755)) //nolint:gosec // it is a program
	fails(program+" exited with status 7", "validate", "--queue", work, "--run", program, "--quiet")
	publishLine(`{"id":"good"}`)
	prints("announced: 3; newest: 6\n", "validate", "--queue", work, "--run", "true", "--quiet")
	prints("announced: 6; newest: 6\n", "announce")

	prints("pinned to 3 for canary by ", "pin", "--to", "3", "--group", "canary", "--reason", "look")
	prints("announced: 6; newest: 6\npinned to 2 for all servers by ", "rollback", "--to", "2", "--reason", "bad ingest")
	fails("run revert, then validate and announce its manifest", "unpin")
	list := ok(t, "", "manifests", "--bucket", url).stdout
	require.Regexp(t, `(?m)^ +2 .* pinned for all$`, list)
	require.Regexp(t, `(?m)^ +6 .* announced, bad$`, list)

	publishLine(`{"id":"corrected"}`)
	prints("announcing is frozen by the rollback", "validate", "--queue", work, "--quiet")
	fails("nothing is announced after a rollback", "announce")
	prints("announced: 6; newest: 7\nbad: 3 to 6\n", "unpin", "--accept-bad")
	prints("canary of 7 for zone-a by ", "announce", "--canary", "zone-a")
	require.Regexp(t, `(?m)^ +7 .* canary for zone-a$`, ok(t, "", "manifests", "--bucket", url).stdout)
	prints("announced: 7; newest: 7\nbad: 3 to 6\n", "announce")
	fails(`group "canary" has no pin`, "unpin", "--group", "canary")
	fails("is announced or older", "validate", "--to", "7", "--queue", work, "--require-id", "none", "--quiet")

	prints("retained: 2\n", "retain", "--to", "2")
	prints("5 manifests and ", "gc", "--keep", "1", "--dry-run")
	prints("5 manifests and ", "gc", "--keep", "1")
	prints("0 manifests and 0 files of 0 B deleted; the oldest manifest is 7\n", "gc", "--keep", "1")
	fails("manifest 5 was collected by gc; the oldest is 7", "pin", "--to", "5")
	fails("manifest 5 was collected by gc; the oldest is 7", "restore", "--to", "5", "--queue", filepath.Join(root, "five"))
	ok(t, "", "restore", "--bucket", url, "--to", "2", "--queue", filepath.Join(root, "two"), "--quiet")
	require.Equal(t, "{\"id\":\"0\"}\n{\"id\":\"1\"}\n", dump(t, filepath.Join(root, "two")))
	require.Regexp(t, `(?m)^ +2 .* retained$`, ok(t, "", "manifests", "--bucket", url).stdout)
	prints("announced: 7; newest: 7\nbad: 3 to 6\n", "retain", "--to", "2", "--release")
	prints("1 manifest and ", "gc", "--keep", "1")
	fails("manifest 2 was collected by gc", "pin", "--to", "2")
}
