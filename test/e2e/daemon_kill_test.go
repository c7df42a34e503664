package e2e

import (
	"bytes"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"testing"
	"time"

	"docstore/internal/crashtest"
	"docstore/internal/testseed"
)

// TestDaemonKilled sends SIGKILL to the daemon at random times: during start, while it reads
// the queue, while it writes its index, and during appends. At the end all documents are
// served, each once, and the index passes its check.
func TestDaemonKilled(t *testing.T) {
	t.Parallel()
	random, tally := testseed.Rand(t), crashtest.NewTally(t, "kills")
	queue, data := t.TempDir(), t.TempDir()
	appendAll := func(documents []document) {
		start(t, bytes.NewReader(ndjson(documents)), "docstore-updater",
			"append", "--queue", queue, "--segment-size", "1MiB", "--flush-every", "100").WaitExit(t)
	}
	want := map[string][]byte{}
	first := []document{{id: "0", line: []byte(`{"id":"0"}`)}}
	appendAll(first)
	want["0"] = first[0].line
	d := startDaemonWith(t, queue, data, "--memory", "16MiB")
	kills := crashtest.Share(12, 300)
	for kill := range kills {
		// Some ids are new, others are overwritten.
		var documents []document
		for i := range 2_000 {
			id := fmt.Sprint(random.IntN(20_000))
			documents = append(documents, document{id: id, line: fmt.Appendf(nil, `{"id":%q,"kill":%d,"line":%d}`, id, kill, i)})
			want[id] = documents[i].line
		}
		appended := make(chan struct{})
		go func() {
			defer close(appended)
			appendAll(documents)
		}()
		select {
		case <-appended:
		case <-time.After(time.Duration(random.IntN(120)) * time.Millisecond):
		}
		d.Kill()
		tally.Case()
		<-appended
		d.restart(t)
		if kill%20 == 19 || kill == kills-1 {
			d.waitReady(t)
			d.waitDocument(t, documents[len(documents)-1].id, want[documents[len(documents)-1].id])
			d.waitExport(t, want)
		}
	}
	d.Stop(t)
	start(t, nil, "docserviced", "check", "--data", data).WaitExit(t)
}

// waitExport waits until the daemon exports exactly these documents.
func (d *daemon) waitExport(t *testing.T, want map[string][]byte) {
	t.Helper()
	var all []byte
	for _, id := range slices.Sorted(maps.Keys(want)) {
		all = fmt.Appendf(all, `{"id":%q,"found":true,"document":%s}`+"\n", id, want[id])
	}
	d.poll(t, "/collections/"+collectionName+"/export", func(status int, body []byte) bool {
		return status == http.StatusOK && bytes.Equal(body, all)
	})
}
