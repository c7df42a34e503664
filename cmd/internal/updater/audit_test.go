package updater

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/cmd/internal/cli"
)

// auditRecord is a line of the audit log.
type auditRecord struct {
	Msg, By, Result, Error string
	Audit                  bool
	Flags                  map[string]string
}

// auditRecords returns the audit log of a file.
func auditRecords(t *testing.T, path string) (list []auditRecord) {
	t.Helper()
	content, err := os.ReadFile(path) //nolint:gosec // a file of the test
	require.NoError(t, err)
	for lines := bufio.NewScanner(bytes.NewReader(content)); lines.Scan(); {
		var r auditRecord
		require.NoError(t, json.Unmarshal(lines.Bytes(), &r), lines.Text())
		require.True(t, r.Audit)
		require.Equal(t, cli.User(), r.By)
		list = append(list, r)
	}
	return list
}

// Each administrative command leaves one record with its flags and result; others, and dry
// runs, leave none.
func TestAdministrativeCommandsAreAudited(t *testing.T) {
	l := newLifeCycle(t)
	for range 3 {
		l.publish(`{"id":"a"}`)
	}
	l.release()
	path := filepath.Join(l.root, "audit.log")
	t.Setenv("DOCSTORE_AUDIT_LOG", path)
	last := func(action, result string) auditRecord {
		t.Helper()
		list := auditRecords(t, path)
		r := list[len(list)-1]
		require.Equal(t, "docstore-updater "+action, r.Msg)
		require.Equal(t, result, r.Result, r.Error)
		require.Equal(t, result == "failed", r.Error != "")
		return r
	}
	done := func(args ...string) auditRecord {
		t.Helper()
		ok(t, "", args...)
		return last(args[0], "done")
	}
	bucket := func(args ...string) []string { return append(args, "--bucket", l.url) }

	r := done(bucket("pin", "--to", "2", "--reason", "parser-2")...)
	require.Equal(t, map[string]string{"to": "2", "reason": "parser-2", "bucket": l.url}, r.Flags)
	done(bucket("unpin")...)
	done(bucket("announce", "--to", "3")...)
	done(bucket("retain", "--to", "1")...)
	done(bucket("gc", "--keep", "9")...)
	done(bucket("rollback", "--to", "2")...)
	l.publish(`{"id":"b"}`)
	done(bucket("revert", "--to", "2", "--queue", l.queue)...)
	l.fails("there is no manifest 9", "discard", "--to", "9", "--queue", l.queue)
	require.Contains(t, last("discard", "failed").Error, "there is no manifest 9")
	done("truncate", "--queue", l.queue, "--to", "4")
	done("compact", "--queue", l.queue, "--quiet", "--erase-deleted-older-than", "1h")
	done("repair", "--queue", l.queue, "--quiet")
	require.Len(t, auditRecords(t, path), 11)

	ok(t, "", "repair", "--queue", l.queue, "--quiet", "--dry-run")
	require.Equal(t, cli.ExitUsage, run(t.Context(), nil, "truncate", "--queue", l.queue, "--to", "x").status)
	ok(t, "", "compact", "--queue", l.queue, "--quiet")
	ok(t, "", bucket("manifests")...)
	require.Len(t, auditRecords(t, path), 11, "nothing was changed")

	// The flag takes precedence. An action that cannot be recorded is not started.
	other := filepath.Join(l.root, "other.log")
	ok(t, "", bucket("pin", "--to", "2", "--audit-log", other)...)
	require.Len(t, auditRecords(t, other), 1)
	l.fails("audit log: open ", "unpin", "--audit-log", filepath.Join(l.root, "none", "audit.log"))
	require.Contains(t, ok(t, "", bucket("retain", "--to", "2")...).stdout, "pinned to 2")

	// Without a file the records are in the log, at any level.
	t.Setenv("DOCSTORE_AUDIT_LOG", "")
	require.Contains(t, ok(t, "", bucket("retain", "--to", "3", "--log-level", "ERROR")...).stderr, `"msg":"docstore-updater retain","audit":true,"by":`)
}
