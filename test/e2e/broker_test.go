package e2e

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"docstore/internal/jobs"
)

// asBroker in the environment makes the test binary a broker with documents: kafka or nats.
const asBroker = "DOCSTORE_E2E_BROKER"

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

// runBroker runs a broker with the documents until standard input ends. It prints its URL.
func runBroker(kind string) error {
	url, stop, err := map[string]func() (string, func(), error){"kafka": startKafka, "nats": startNATS}[kind]()
	if err != nil {
		return err
	}
	defer stop()
	fmt.Println(url)
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

func startKafka() (url string, stop func(), err error) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(4, "jobs"))
	if err != nil {
		return "", nil, err
	}
	producer, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...), kgo.ProducerBatchCompression(kgo.NoCompression()))
	if err != nil {
		return "", nil, err
	}
	defer producer.Close()
	return "kafka://" + cluster.ListenAddrs()[0] + "/jobs", cluster.Close, producer.ProduceSync(context.Background(), brokerContent()...).FirstErr()
}

func startNATS() (url string, stop func(), err error) {
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: -1, JetStream: true, StoreDir: os.TempDir(), NoLog: true})
	if err != nil {
		return "", nil, err
	}
	s.Start()
	connection, err := natsgo.Connect(s.ClientURL())
	if err != nil {
		return "", nil, err
	}
	defer connection.Close()
	js, err := jetstream.New(connection)
	if err != nil {
		return "", nil, err
	}
	_, err = js.CreateStream(context.Background(), jetstream.StreamConfig{Name: "JOBS", Subjects: []string{"jobs.*"}, Storage: jetstream.MemoryStorage})
	if err != nil {
		return "", nil, err
	}
	for _, d := range brokerContent() {
		if _, err := js.PublishAsync("jobs."+string(d.Key), d.Value, jetstream.WithStallWait(time.Minute)); err != nil {
			return "", nil, err
		}
	}
	<-js.PublishAsyncComplete()
	return s.ClientURL() + "/JOBS?subject=jobs.*", s.Shutdown, nil
}
