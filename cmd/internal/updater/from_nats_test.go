package updater

import (
	"path/filepath"
	"testing"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"docstore/internal/natstest"
)

func TestFromNATS(t *testing.T) {
	s := natstest.Start(t)
	connection, err := natsgo.Connect(s.URL())
	require.NoError(t, err)
	defer connection.Close()
	js, err := jetstream.New(connection)
	require.NoError(t, err)
	kv, err := js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: "jobs", History: 5})
	require.NoError(t, err)
	put := func(id, value string) {
		_, err := kv.Put(t.Context(), id, []byte(value))
		require.NoError(t, err)
	}
	queueDir := filepath.Join(t.TempDir(), "queue")
	from := func() string {
		r := ok(t, "", "append", "--queue", queueDir, "--from", s.URL()+"/KV_jobs?subject=$KV.jobs.*")
		require.Contains(t, r.stderr, `"waiting_messages":0`)
		return dump(t, queueDir)
	}
	put("17", `{"id":"17","n":1}`)
	put("18", `{"id":"18"}`)
	require.NoError(t, kv.Delete(t.Context(), "17"))
	require.Equal(t, `{"id":"17","n":1}`+"\n"+`{"id":"18"}`+"\n"+`{"id":"17","_delete":true}`+"\n", from())
	put("19", `{"id":"19"}`)
	require.Contains(t, from(), `{"id":"17","_delete":true}`+"\n"+`{"id":"19"}`+"\n")
}
