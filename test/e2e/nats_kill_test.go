package e2e

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"docstore/internal/crashtest"
	"docstore/internal/natstest"
	"docstore/internal/testseed"
)

// TestUpdaterOfNATSKilled kills the updater with SIGKILL while it follows a stream of JetStream,
// to which messages are written. The queue has each message once, in order.
func TestUpdaterOfNATSKilled(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	connection, err := natsgo.Connect(s.URL())
	require.NoError(t, err)
	defer connection.Close()
	js, err := jetstream.New(connection)
	require.NoError(t, err)
	_, err = js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "JOBS", Subjects: []string{"jobs.*"}})
	require.NoError(t, err)

	random, tally := testseed.Rand(t), crashtest.NewTally(t, "kills")
	var want []string
	produce := func(n int) {
		for range n {
			id := random.IntN(1000)
			m := &natsgo.Msg{Subject: fmt.Sprintf("jobs.%d", id)}
			line := fmt.Sprintf(`{"id":"%d","_delete":true}`, id)
			if random.IntN(5) > 0 {
				line = fmt.Sprintf(`{"id":"%d","n":%d}`, id, len(want))
				m.Data = []byte(line)
			} else {
				m.Header = natsgo.Header{"KV-Operation": {"DEL"}}
			}
			_, err := js.PublishMsgAsync(m)
			require.NoError(t, err)
			want = append(want, line)
		}
		<-js.PublishAsyncComplete()
	}
	queue := filepath.Join(t.TempDir(), "queue")
	args := []string{
		"append", "--queue", queue, "--segment-size", "64KiB", "--flush-interval", "5ms",
		"--from", s.URL() + "/JOBS?subject=jobs.*",
	}
	for range crashtest.Share(10, 200) {
		updater := start(t, nil, "docstore-updater", append(args, "--follow")...)
		for until := time.Now().Add(time.Duration(random.IntN(250)) * time.Millisecond); time.Now().Before(until); {
			produce(1 + random.IntN(200))
		}
		updater.Kill()
		tally.Case()
	}
	produce(100)
	start(t, nil, "docstore-updater", args...).WaitExit(t)
	var got []string
	for _, line := range dump(t, queue) {
		got = append(got, strings.TrimSuffix(string(line), "\n"))
	}
	require.Equal(t, want, got)
}
