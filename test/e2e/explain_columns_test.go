//go:build linux

package e2e

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/docservice/explain"
)

// Two columns of servers: boxcar explain --etcd asks the rows of the column that holds the shard of
// the id.
func TestExplainColumns(t *testing.T) {
	documents := corpus(t)[:200]
	f := startColumnFleet(t, t.TempDir(), 2, []string{"a", "b"}, documents, false)
	m, _ := f.store.Map()
	explained := func(flags ...string) (report explain.Report) {
		t.Helper()
		args := append([]string{"explain", "--collection", collectionName, "--timeout", "20s", "--json", documents[0].id}, flags...)
		out, err := exec.Command(filepath.Join(binaries, "boxcar"), args...).Output()
		require.NoError(t, json.Unmarshal(out, &report), "%v", err)
		return report
	}
	column := m.Shards[m.Layout.ShardString(documents[0].id)].Column
	report := explained("--etcd", f.etcd.Address)
	require.Equal(t, explain.Served, report.Verdict, report.Reason)
	require.Equal(t, column, report.Placement.Column)
	require.Len(t, report.Servers, 2)
	for _, s := range report.Servers {
		require.Equal(t, column, s.Facts.Column.Name)
		require.Equal(t, report.Placement.Epoch, s.Facts.Column.Epoch)
		require.EqualValues(t, 1, s.Facts.Manifest.Served)
	}

	// A server of the other column does not have the shard.
	other := map[string]string{"a": "b", "b": "a"}[column]
	report = explained("--servers", f.columns[other][0].boxcar)
	require.Equal(t, explain.NotHere, report.Verdict, report.Reason)
	require.Contains(t, report.Reason, "of column "+column)
	for _, d := range f.daemons() {
		d.Stop(t)
	}
}
