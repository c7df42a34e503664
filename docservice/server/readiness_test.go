package server

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/docservice/readiness"
	"docstore/internal/servertest"
)

// A copy without files says so, and each change of its state is logged once.
func TestStatesOfACopy(t *testing.T) {
	queueDir := t.TempDir()
	d, log := startTestDaemon(t, testOptions(t, queueDir))
	state := func() CollectionReadiness {
		var body Readiness
		require.NoError(t, json.Unmarshal(servertest.Get(d.HTTPHandler(), "/readyz").Body.Bytes(), &body))
		return body.Collections["jobs"]
	}
	require.Equal(t, readiness.NoFiles, state().State)
	require.Contains(t, state().Reason, "no files: no file of the queue has arrived here")
	require.Contains(t, servertest.Get(d.HTTPHandler(), "/api/v1/status").Body.String(), `"state": "no_files"`)
	servertest.Until(servertest.Shortly(t), func() bool {
		return strings.Contains(servertest.Get(d.HTTPHandler(), "/metrics").Body.String(), `docstore_collection_state{collection="jobs",state="no_files"} 1`)
	})

	servertest.Fill(t, queueDir, "a", `{"id":"a"}`)
	waitReady(t, d)
	require.Equal(t, readiness.Ready, state().State)
	require.Empty(t, state().Reason)
	servertest.Until(servertest.Shortly(t), func() bool { return strings.Contains(log.String(), `"state":"ready"`) })
	require.Equal(t, 1, strings.Count(log.String(), `"state":"no_files"`))
	require.Contains(t, log.String(), `"before":"no_files","after":"`, "text, not a number of nanoseconds")
}

func TestStatesAreLoggedOnce(t *testing.T) {
	var log bytes.Buffer
	s := states{logger: slog.New(slog.NewTextHandler(&log, nil)), of: map[string]*lastState{}}
	began := time.Unix(1000, 0)
	at := func(second int) time.Time { return began.Add(time.Duration(second) * time.Second) }
	fetching := func(done int64) readiness.Report {
		return readiness.Report{State: readiness.Fetching, Cause: "it is far", Progress: &readiness.Progress{Done: done, Total: 100, Unit: readiness.Bytes}}
	}
	lines := func() (text string) {
		text = log.String()
		log.Reset()
		return text
	}
	s.observe("jobs/1", fetching(0), at(0))
	require.Contains(t, lines(), `level=INFO msg="not ready" collection=jobs/1 state=fetching reason="fetching 0 B of 100 B: it is far"`)
	for i := 1; i <= 10; i++ {
		s.observe("jobs/1", fetching(int64(i)), at(i))
	}
	require.Empty(t, lines())
	require.InDelta(t, 90, s.describe("jobs/1", fetching(10)).Progress.SecondsLeft, 0.01)
	require.Zero(t, s.describe("jobs/2", fetching(10)).Progress.SecondsLeft)

	s.observe("jobs/1", readiness.Report{State: readiness.Faulted, Cause: "damage"}, at(11))
	require.Contains(t, lines(), `level=WARN msg="not ready" collection=jobs/1 state=faulted before=fetching after=11s reason="faulted: damage"`)
	s.observe("jobs/1", readiness.Report{State: readiness.Ready}, at(13))
	require.Contains(t, lines(), `level=INFO msg=ready collection=jobs/1 state=ready before=faulted after=2s`)

	// A shard that is not observed any more is forgotten.
	s.forgetOthers()
	require.Equal(t, map[string]readiness.State{"jobs/1": readiness.Ready}, s.all())
	s.forgetOthers()
	require.Empty(t, s.all())
}
