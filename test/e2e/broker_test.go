package e2e

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"docstore/internal/jobs"
	"docstore/internal/natstest"
)

// asKafka in the environment makes the test binary a Kafka broker with documents.
const asKafka = "DOCSTORE_E2E_KAFKA"

// brokerDocuments is the number of documents of a broker, 0.9 KB each.
const brokerDocuments = 300_000

// brokerContent returns the documents with their ids as keys.
func brokerContent() []*kgo.Record {
	postings, documents := jobs.New(1), make([]*kgo.Record, brokerDocuments)
	for i := range documents {
		line := postings.Next()
		documents[i] = &kgo.Record{Topic: "jobs", Key: fmt.Append(nil, i), Value: []byte(strings.Clone(string(line)))}
	}
	return documents
}

// runKafka runs a Kafka broker with the documents until standard input ends. It prints its URL.
func runKafka() error {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(4, "jobs"))
	if err != nil {
		return err
	}
	defer cluster.Close()
	producer, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...), kgo.ProducerBatchCompression(kgo.NoCompression()))
	if err != nil {
		return err
	}
	defer producer.Close()
	if err := producer.ProduceSync(context.Background(), brokerContent()...).FirstErr(); err != nil {
		return err
	}
	fmt.Println("kafka://" + cluster.ListenAddrs()[0] + "/jobs")
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// fillNATS writes the documents to a new stream and returns its URL.
func fillNATS(t testing.TB, s *natstest.Server) string {
	connection, err := natsgo.Connect(s.URL())
	require.NoError(t, err)
	defer connection.Close()
	js, err := jetstream.New(connection)
	require.NoError(t, err)
	_, err = js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "JOBS", Subjects: []string{"jobs.*"}, Storage: jetstream.MemoryStorage})
	require.NoError(t, err)
	for _, d := range brokerContent() {
		_, err := js.PublishAsync("jobs."+string(d.Key), d.Value, jetstream.WithStallWait(time.Minute))
		require.NoError(t, err)
	}
	<-js.PublishAsyncComplete()
	return s.URL() + "/JOBS?subject=jobs.*"
}
