package kafka

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"

	"docstore/ingest"
	"docstore/ingest/envelope"
	"docstore/internal/testcert"
	"docstore/internal/testseed"
	"docstore/queue"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const testTimeout = 30 * time.Second

// broker is a cluster of kfake, over TCP, with a topic.
type broker struct {
	*kfake.Cluster
	t      *testing.T
	client *kgo.Client
}

func newBroker(t *testing.T, partitions int32, options ...kfake.Opt) *broker {
	t.Helper()
	cluster, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(2), kfake.SeedTopics(partitions, "jobs"), kfake.ClusterID("c1")}, options...)...)
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	b := &broker{Cluster: cluster, t: t}
	b.client = b.newClient()
	return b
}

func (b *broker) newClient(options ...kgo.Opt) *kgo.Client {
	b.t.Helper()
	client, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(b.ListenAddrs()...), kgo.RecordPartitioner(kgo.ManualPartitioner()),
	}, options...)...)
	require.NoError(b.t, err)
	b.t.Cleanup(client.Close)
	return client
}

// produce writes messages to a partition, one in a batch. A value of "-" is null.
func (b *broker) produce(partition int32, messages ...string) {
	b.t.Helper()
	for _, m := range messages {
		require.NoError(b.t, b.client.ProduceSync(b.t.Context(), message(partition, m)).FirstErr())
	}
}

// message returns a message of the form KEY=VALUE.
func message(partition int32, text string) *kgo.Record {
	key, value, _ := strings.Cut(text, "=")
	m := &kgo.Record{Topic: "jobs", Partition: partition, Key: []byte(key), Value: []byte(value)}
	if value == "-" {
		m.Value = nil
	}
	return m
}

func (b *broker) config(edit ...func(*Config)) Config {
	c := Config{Brokers: b.ListenAddrs(), Topic: "jobs", Decoder: envelope.Decoder{Format: envelope.Raw}}
	for _, f := range edit {
		f(&c)
	}
	return c
}

func follow(c *Config) { c.Follow = true }

func (b *broker) opener(edit ...func(*Config)) *Opener {
	b.t.Helper()
	o, err := NewOpener(b.config(edit...))
	require.NoError(b.t, err)
	o.watchInterval = 10 * time.Millisecond
	return o
}

func (b *broker) open(cursor []byte, edit ...func(*Config)) *reader {
	b.t.Helper()
	src, err := b.opener(edit...).Open(b.t.Context(), cursor)
	require.NoError(b.t, err)
	b.t.Cleanup(func() { require.NoError(b.t, src.Close()) })
	return &reader{t: b.t, src: src}
}

// openError opens behind a cursor and returns the error.
func (b *broker) openError(cursor []byte, edit ...func(*Config)) error {
	b.t.Helper()
	src, err := b.opener(edit...).Open(b.t.Context(), cursor)
	if err == nil {
		src.Close()
	}
	require.Error(b.t, err)
	return err
}

// reader reads a source.
type reader struct {
	t      *testing.T
	src    ingest.Source
	cursor []byte // behind the last record
}

func show(r ingest.Record) string {
	switch {
	case r.Problem != nil:
		return "invalid: " + r.Problem.Error()
	case r.Delete:
		return string(r.ID) + "=-"
	}
	return string(r.ID) + "=" + string(r.Document)
}

// next returns the records of the next batch and the error.
func (r *reader) next() ([]string, error) {
	ctx, cancel := context.WithTimeout(r.t.Context(), testTimeout)
	defer cancel()
	b, err := r.src.Next(ctx)
	if err != nil {
		return nil, err
	}
	require.NotEmpty(r.t, b.Records)
	var got []string
	for i, record := range b.Records {
		got = append(got, show(record))
		r.cursor = b.AppendCursor(nil, i)
		require.LessOrEqual(r.t, len(r.cursor), queue.MaxCursorBytes)
	}
	b.Release()
	return got, nil
}

// read reads until there are n records.
func (r *reader) read(n int) []string {
	r.t.Helper()
	var got []string
	for len(got) < n {
		batch, err := r.next()
		require.NoError(r.t, err)
		got = append(got, batch...)
	}
	return got
}

// readAll reads to the end.
func (r *reader) readAll() []string {
	r.t.Helper()
	got, err := r.readUntilError()
	require.ErrorIs(r.t, err, io.EOF)
	return got
}

func (r *reader) readUntilError() (got []string, err error) {
	for {
		batch, err := r.next()
		if err != nil {
			return got, err
		}
		got = append(got, batch...)
	}
}

func TestReadAndResume(t *testing.T) {
	b := newBroker(t, 1)
	b.produce(0, "1=a", "2=b", "1=-", "3=")
	r := b.open(nil)
	require.Equal(t, []string{"1=a", "2=b", "1=-", "3="}, r.readAll())

	b.produce(0, "4=d")
	require.Equal(t, []string{"4=d"}, b.open(r.cursor).readAll())
	require.Empty(t, b.open(b.open(r.cursor).mustRead(1)).readAll(), "nothing is left")
}

// mustRead reads n records and returns the cursor.
func (r *reader) mustRead(n int) []byte {
	r.t.Helper()
	r.read(n)
	return r.cursor
}

// TestEveryCursorContinues resumes behind each record of several partitions.
func TestEveryCursorContinues(t *testing.T) {
	b := newBroker(t, 3)
	for i := range 12 {
		b.produce(int32(i%3), fmt.Sprintf("%d=v", i))
	}
	type place struct {
		cursor []byte
		before map[string]bool
	}
	var places []place
	r := b.open(nil)
	read := map[string]bool{}
	for {
		batch, err := r.src.Next(t.Context())
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		require.True(t, batch.Ends)
		for i, record := range batch.Records {
			read[show(record)] = true
			before := map[string]bool{}
			for k := range read {
				before[k] = true
			}
			places = append(places, place{batch.AppendCursor(nil, i), before})
			for k, p := range places {
				position, err := b.opener().Position(p.cursor)
				require.NoError(t, err)
				require.Equal(t, k == len(places)-1, batch.Included(position, i), "a cursor has the records up to its own")
			}
		}
	}
	require.Len(t, places, 12)
	for _, p := range places {
		got := map[string]bool{}
		for _, record := range b.open(p.cursor).readAll() {
			require.False(t, p.before[record], "%s is read twice", record)
			got[record] = true
		}
		require.Equal(t, 12, len(got)+len(p.before))
	}
}

func TestFollowWaitsForMessages(t *testing.T) {
	b := newBroker(t, 2)
	b.produce(0, "1=a")
	r := b.open(nil, follow)
	require.Equal(t, []string{"1=a"}, r.read(1))
	b.produce(1, "2=b")
	require.Equal(t, []string{"2=b"}, r.read(1))

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := r.src.Next(ctx)
	require.ErrorIs(t, err, context.Canceled)
	b.produce(0, "3=c")
	require.Equal(t, []string{"3=c"}, r.read(1), "an ended context loses nothing")
}

func TestSelectedPartitions(t *testing.T) {
	b := newBroker(t, 4)
	for p := range int32(4) {
		b.produce(p, fmt.Sprintf("%d=v", p))
	}
	part := func(partitions ...int32) func(*Config) { return func(c *Config) { c.Partitions = partitions } }
	r := b.open(nil, part(1, 3))
	require.ElementsMatch(t, []string{"1=v", "3=v"}, r.readAll())
	// Other partitions keep the cursors of the first ones.
	other := b.open(r.cursor, part(0))
	require.Equal(t, []string{"0=v"}, other.readAll())
	require.Equal(t, []string{"2=v"}, b.open(other.cursor).readAll())
	require.ErrorContains(t, b.openError(nil, part(4)), "partition 4 does not exist; the topic has 4 partitions")
}

func TestTransactions(t *testing.T) {
	b := newBroker(t, 1)
	producer := b.newClient(kgo.TransactionalID("tx"))
	transaction := func(commit kgo.TransactionEndTry, messages ...string) {
		require.NoError(t, producer.BeginTransaction())
		for _, m := range messages {
			require.NoError(t, producer.ProduceSync(t.Context(), message(0, m)).FirstErr())
		}
		require.NoError(t, producer.EndTransaction(t.Context(), commit))
	}
	transaction(kgo.TryCommit, "1=a", "2=b")
	transaction(kgo.TryAbort, "1=x", "9=x")
	transaction(kgo.TryCommit, "3=c")
	transaction(kgo.TryAbort, "9=y")

	r := b.open(nil)
	require.Equal(t, []string{"1=a", "2=b", "3=c"}, r.readAll(), "the source ends behind aborted messages")
	require.Empty(t, b.open(r.cursor).readAll())

	// Messages of an open transaction wait, also for those after them.
	require.NoError(t, producer.BeginTransaction())
	require.NoError(t, producer.ProduceSync(t.Context(), message(0, "4=d")).FirstErr())
	b.produce(0, "5=e")
	require.Empty(t, b.open(r.cursor).readAll())
	following := b.open(r.cursor, follow)
	require.NoError(t, producer.EndTransaction(t.Context(), kgo.TryCommit))
	require.Equal(t, []string{"4=d", "5=e"}, following.read(2))
}

func TestResumeInsideATransaction(t *testing.T) {
	b := newBroker(t, 1)
	producer := b.newClient(kgo.TransactionalID("tx"))
	require.NoError(t, producer.BeginTransaction())
	for _, m := range []string{"1=a", "2=b", "3=c"} {
		require.NoError(t, producer.ProduceSync(t.Context(), message(0, m)).FirstErr())
	}
	require.NoError(t, producer.EndTransaction(t.Context(), kgo.TryCommit))
	batch, err := b.open(nil).src.Next(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{"2=b", "3=c"}, b.open(batch.AppendCursor(nil, 0)).readAll())
}

func TestCompactedTopic(t *testing.T) {
	b := newBroker(t, 1, kfake.BrokerConfigs(map[string]string{"log.cleanup.policy": "compact"}))
	b.produce(0, "1=a", "2=b", "1=c", "2=d", "3=e")
	first, err := b.open(nil).src.Next(t.Context())
	require.NoError(t, err)
	cursor := first.AppendCursor(nil, 0)
	b.Compact()
	got := b.open(cursor).readAll()
	require.Contains(t, got, "1=c")
	require.Contains(t, got, "2=d")
	require.Contains(t, got, "3=e")
}

func TestElections(t *testing.T) {
	b := newBroker(t, 3)
	r := b.open(nil, follow)
	for i := range 30 {
		if i%5 == 0 {
			b.ShufflePartitionLeaders()
		}
		b.produce(int32(i%3), fmt.Sprintf("%d=v", i))
		if i%10 == 9 {
			r.read(10)
		}
	}
	require.Empty(t, b.open(r.cursor).readAll())
	b.produce(0, "x=v")
	require.Equal(t, []string{"x=v"}, r.read(1))
}

func TestBrokerDisappears(t *testing.T) {
	b := newBroker(t, 2)
	b.produce(0, "0=v")
	r := b.open(nil, follow)
	r.read(1)
	require.NoError(t, b.RemoveNode(b.LeaderFor("jobs", 0)))
	b.produce(0, "1=v")
	require.Equal(t, []string{"1=v"}, r.read(1))
}

func TestTransientFaultsOfBrokersAreRetried(t *testing.T) {
	b := newBroker(t, 1)
	b.produce(0, "1=a")
	for _, key := range []kmsg.Key{kmsg.Fetch, kmsg.ListOffsets, kmsg.OffsetForLeaderEpoch} {
		b.Fault(kfake.Fault{Keys: []kmsg.Key{key}, Err: kerr.NotLeaderForPartition, Count: 2})
	}
	r := b.open(nil)
	require.Equal(t, []string{"1=a"}, r.readAll())
	b.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetForLeaderEpoch}, Err: kerr.FencedLeaderEpoch, Count: 2})
	require.Empty(t, b.open(r.cursor).readAll())
}

func TestMessagesDeletedBeforeTheCursorAreNotMissed(t *testing.T) {
	b := newBroker(t, 1)
	b.produce(0, "1=a", "2=b", "3=c")
	batch, err := b.open(nil).src.Next(t.Context())
	require.NoError(t, err)
	require.NoError(t, b.DeleteRecords("jobs", 0, 1))
	require.Equal(t, []string{"2=b", "3=c"}, b.open(batch.AppendCursor(nil, 0)).readAll())
	require.Equal(t, []string{"2=b", "3=c"}, b.open(nil).readAll(), "a new queue has what the topic has")
}

func TestMessagesDeletedBehindTheCursorStopReading(t *testing.T) {
	b := newBroker(t, 1)
	b.produce(0, "1=a", "2=b", "3=c")
	batch, err := b.open(nil).src.Next(t.Context())
	require.NoError(t, err)
	require.NoError(t, b.DeleteRecords("jobs", 0, 2))
	require.ErrorContains(t, b.openError(batch.AppendCursor(nil, 0)),
		"partition 0: the messages at offsets 1 to 1 were deleted before they were read; the queue may differ from the topic")
}

func TestMessagesDeletedWhileReadingStopReading(t *testing.T) {
	b := newBroker(t, 1)
	b.produce(0, "1=a")
	r := b.open(nil, follow)
	r.read(1)
	// The next fetch begins when the messages of the last one have been taken.
	b.produce(0, "2=b")
	client := r.src.(*Source).client
	require.Eventually(t, func() bool { return client.BufferedFetchRecords() == 1 }, testTimeout, time.Millisecond)
	b.produce(0, "3=c", "4=d")
	require.NoError(t, b.DeleteRecords("jobs", 0, 3))
	got, err := r.readUntilError()
	require.Equal(t, []string{"2=b"}, got)
	require.ErrorContains(t, err, "partition 0: the next message was deleted before it was read, or the log ends before it")
}

// TestTruncatedLog: a leader without the last messages answers.
func TestTruncatedLog(t *testing.T) {
	b := newBroker(t, 1)
	b.produce(0, "1=a", "2=b", "3=c")
	cursor := b.open(nil).mustRead(3)
	b.ControlKey(int16(kmsg.OffsetForLeaderEpoch), func(request kmsg.Request) (kmsg.Response, error, bool) {
		b.KeepControl()
		response := request.ResponseKind().(*kmsg.OffsetForLeaderEpochResponse)
		topic := kmsg.NewOffsetForLeaderEpochResponseTopic()
		topic.Topic = "jobs"
		partition := kmsg.NewOffsetForLeaderEpochResponseTopicPartition()
		partition.EndOffset, partition.LeaderEpoch = 1, 0
		topic.Partitions = append(topic.Partitions, partition)
		response.Topics = append(response.Topics, topic)
		return response, nil, true
	})
	require.ErrorContains(t, b.openError(cursor), "offsets 1 to 2 were read and then lost or replaced when another replica became leader")
}

// TestTruncatedLogWhileReading: the same after an election while the source reads.
func TestTruncatedLogWhileReading(t *testing.T) {
	b := newBroker(t, 1)
	b.produce(0, "1=a", "2=b", "3=c")
	r := b.open(nil, follow)
	r.read(3)
	b.ControlKey(int16(kmsg.OffsetForLeaderEpoch), func(request kmsg.Request) (kmsg.Response, error, bool) {
		b.KeepControl()
		response := request.ResponseKind().(*kmsg.OffsetForLeaderEpochResponse)
		topic := kmsg.NewOffsetForLeaderEpochResponseTopic()
		topic.Topic = "jobs"
		partition := kmsg.NewOffsetForLeaderEpochResponseTopicPartition()
		partition.EndOffset, partition.LeaderEpoch = 1, 0
		topic.Partitions = append(topic.Partitions, partition)
		response.Topics = append(response.Topics, topic)
		return response, nil, true
	})
	b.MoveTopicPartition("jobs", 0, 1-b.LeaderFor("jobs", 0))
	// The error and the messages of the new log arrive before the next read.
	client := r.src.(*Source).client
	require.Eventually(t, func() bool { return client.BufferedFetchRecords() == 2 }, testTimeout, time.Millisecond)
	_, err := r.readUntilError()
	require.ErrorContains(t, err, "offsets 1 to 2 were read and then lost or replaced when another replica became leader")
}

func TestCursorBehindTheEnd(t *testing.T) {
	b := newBroker(t, 1)
	b.produce(0, "1=a")
	p, err := parsePosition(b.open(nil).mustRead(1))
	require.NoError(t, err)
	p.entries[0].offset, p.entries[0].epoch, p.entries[0].content = 5, -1, 0
	require.ErrorContains(t, b.openError(p.encode()), "offsets 1 to 4 were read, and the log ends before them")
}

// TestRestoredLog: a copy of the cluster that lacks messages was written past the cursor, and its leader
// epochs show nothing.
func TestRestoredLog(t *testing.T) {
	lost := newBroker(t, 2)
	lost.produce(0, "1=a", "2=b", "3=c")
	before := lost.open(nil).mustRead(3)
	lost.produce(0, "4=d", "5=e")
	lost.produce(1, "6=f")
	cursor := lost.open(before).mustRead(3)
	lost.produce(0, "7=g")
	require.Equal(t, []string{"7=g"}, lost.open(cursor).readAll())

	restored := newBroker(t, 2)
	at := func(cursor []byte, edit ...func(*entry)) []byte {
		p, err := parsePosition(cursor)
		require.NoError(t, err)
		p.topicID, p.cluster = restored.topicID(), "c1"
		for i := range p.entries {
			p.entries[i].epoch = -1
			for _, f := range edit {
				f(&p.entries[i])
			}
		}
		return p.encode()
	}
	// The copy has the first messages with their times.
	for _, m := range append(lost.fetch(0)[:3], lost.fetch(1)...) {
		require.NoError(t, restored.client.ProduceSync(t.Context(), &kgo.Record{Topic: "jobs", Partition: m.Partition, Key: m.Key, Value: m.Value, Timestamp: m.Timestamp}).FirstErr())
	}
	restored.produce(0, "4=x", "5=x", "8=x")
	const want = "partition 0: the message that was read at offset 4 is now another one"
	_, err := restored.open(at(cursor)).readUntilError()
	require.ErrorContains(t, err, want)
	_, err = restored.open(at(cursor), follow).readUntilError()
	require.ErrorContains(t, err, want)
	require.ElementsMatch(t, []string{"4=x", "5=x", "8=x", "6=f"}, restored.open(at(before)).readAll(), "the queue has nothing that was lost")
	require.Equal(t, []string{"8=x"}, restored.open(at(cursor, func(e *entry) { e.content = 0 })).readAll(), "of version 0")

	// The earliest cursor of the shards is one that has lost nothing.
	o := restored.opener()
	from, err := o.Earliest([][]byte{at(before), at(cursor)})
	require.NoError(t, err)
	src, err := o.Open(t.Context(), from)
	require.NoError(t, err)
	defer src.Close()
	_, err = (&reader{t: t, src: src}).readUntilError()
	require.ErrorContains(t, err, want)
}

// topicID returns the id of the topic.
func (b *broker) topicID() [16]byte {
	described, err := describe(b.t.Context(), b.client, "jobs")
	require.NoError(b.t, err)
	return described.id
}

// fetch returns the messages of a partition.
func (b *broker) fetch(partition int32) []*kgo.Record {
	client := b.newClient(kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{"jobs": {partition: kgo.NewOffset().AtStart()}}))
	fetches := client.PollFetches(b.t.Context())
	require.NoError(b.t, fetches.Err())
	return fetches.Records()
}

func TestRecreatedTopic(t *testing.T) {
	b := newBroker(t, 2)
	b.produce(0, "1=a", "2=b")
	cursor := b.open(nil).mustRead(2)
	following := b.open(cursor, follow)
	require.NoError(t, b.DeleteTopic("jobs"))
	require.ErrorContains(t, b.openError(cursor), "the topic does not exist")
	require.NoError(t, b.CreateTopic("jobs", 2, nil))
	producer := b.newClient()
	for range 4 {
		require.NoError(t, producer.ProduceSync(t.Context(), message(0, "9=x")).FirstErr())
	}
	require.ErrorContains(t, b.openError(cursor), "topic jobs was deleted and created again")
	got, err := following.readUntilError()
	require.Empty(t, got)
	// A fetch may find that the offset is gone before the watcher finds the other topic.
	require.ErrorContains(t, err, "use --resume=false")
	require.Regexp(t, "was deleted|were read and then lost or replaced", err.Error())
}

func TestDeletedTopicEndsReading(t *testing.T) {
	b := newBroker(t, 2)
	b.produce(0, "1=a")
	r := b.open(nil, follow)
	r.read(1)
	require.NoError(t, b.DeleteTopic("jobs"))
	_, err := r.readUntilError()
	require.ErrorContains(t, err, "the topic was deleted")
}

func TestAnotherCluster(t *testing.T) {
	b := newBroker(t, 1)
	b.produce(0, "1=a")
	cursor := b.open(nil).mustRead(1)
	other := newBroker(t, 1, kfake.ClusterID("c2"))
	other.produce(0, "1=a", "2=b")
	require.ErrorContains(t, other.openError(cursor), `the cursor is of the cluster with id "c1", and this cluster has id "c2"`)
}

func (b *broker) addPartitions(total int32) {
	request := kmsg.NewPtrCreatePartitionsRequest()
	topic := kmsg.NewCreatePartitionsRequestTopic()
	topic.Topic, topic.Count = "jobs", total
	request.Topics = append(request.Topics, topic)
	response, err := request.RequestWith(b.t.Context(), b.client)
	require.NoError(b.t, err)
	require.NoError(b.t, kerr.ErrorForCode(response.Topics[0].ErrorCode))
	b.client.ForceMetadataRefresh()
}

func TestPartitionsAddedWhileReading(t *testing.T) {
	b := newBroker(t, 1)
	b.produce(0, "1=a")
	r := b.open(nil, follow)
	r.read(1)
	b.addPartitions(3)
	producer := b.newClient()
	require.NoError(t, producer.ProduceSync(t.Context(), message(2, "2=b"), message(1, "3=c")).FirstErr())
	require.ElementsMatch(t, []string{"2=b", "3=c"}, r.read(2))
	require.Empty(t, b.open(r.cursor).readAll())
}

func TestPartitionsAddedBeforeReading(t *testing.T) {
	b := newBroker(t, 1)
	b.produce(0, "1=a")
	cursor := b.open(nil).mustRead(1)
	b.addPartitions(2)
	producer := b.newClient()
	for _, m := range []string{"2=b", "3=c"} {
		require.NoError(t, producer.ProduceSync(t.Context(), message(1, m)).FirstErr())
	}
	require.Equal(t, []string{"2=b", "3=c"}, b.open(cursor).readAll())
	require.NoError(t, b.DeleteRecords("jobs", 1, 1))
	require.ErrorContains(t, b.openError(cursor), "partition 1: the messages at offsets 0 to 0 were deleted before they were read")
}

func TestLag(t *testing.T) {
	b := newBroker(t, 2)
	b.produce(0, "1=a", "2=b")
	b.produce(1, "3=c")
	r := b.open(nil, follow)
	n, unit := r.src.Lag()
	require.EqualValues(t, 3, n)
	require.Equal(t, "messages", unit)
	r.read(3)
	n, _ = r.src.Lag()
	require.Zero(t, n)
	b.produce(1, "4=d")
	require.Eventually(t, func() bool { n, _ := r.src.Lag(); return n == 1 }, testTimeout, time.Millisecond)
}

func TestInvalidMessagesAreRecords(t *testing.T) {
	b := newBroker(t, 1)
	b.produce(0, "=a", "2=b")
	r := b.open(nil)
	batch, err := r.src.Next(t.Context())
	require.NoError(t, err)
	require.ErrorContains(t, batch.Records[0].Problem, "the message has no key")
	require.Equal(t, "topic jobs, partition 0, offset 0", batch.Place(0))
}

// TestMessageOfTwoRecords: a crash between them reads the message again.
func TestMessageOfTwoRecords(t *testing.T) {
	b := newBroker(t, 1)
	b.produce(0, `{"database":"shop","table":"users","pk.id":1}={"type":"insert","data":{}}`,
		`{"database":"shop","table":"jobs","pk.id":2}={"type":"update","data":{"id":2},"old":{"id":1}}`,
		`{"database":"shop","table":"users","pk.id":1}={"type":"delete","data":{}}`)
	maxwell := func(c *Config) { c.Decoder = envelope.Decoder{Format: envelope.Maxwell, Table: "shop.jobs"} }
	r := b.open(nil, maxwell)
	batch, err := r.src.Next(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{"1=-", `2={"id":2}`}, []string{show(batch.Records[0]), show(batch.Records[1])})
	between, behind := batch.AppendCursor(nil, 0), batch.AppendCursor(nil, 1)
	require.Equal(t, []string{"1=-", `2={"id":2}`}, b.open(between, maxwell).readAll())
	require.Empty(t, b.open(behind, maxwell).readAll())
	o := b.opener(maxwell)
	for i, cursor := range [][]byte{between, behind} {
		p, err := o.Position(cursor)
		require.NoError(t, err)
		require.Equal(t, i == 1, batch.Included(p, 0))
		require.Equal(t, i == 1, batch.Included(p, 1))
	}
	p, err := parsePosition(behind)
	require.NoError(t, err)
	require.EqualValues(t, 3, p.entries[0].offset, "behind the skipped message too")
}

func TestLargeFetchesAreSplit(t *testing.T) {
	b := newBroker(t, 1)
	value := strings.Repeat("x", batchBytes/4)
	var messages []*kgo.Record
	for i := range 10 {
		messages = append(messages, message(0, fmt.Sprintf("%d=%s", i, value)))
	}
	require.NoError(t, b.client.ProduceSync(t.Context(), messages...).FirstErr())
	r := b.open(nil)
	batch, err := r.src.Next(t.Context())
	require.NoError(t, err)
	require.Len(t, batch.Records, 4)
	require.Len(t, b.open(batch.AppendCursor(nil, 3)).readAll(), 6)
}

func TestCompression(t *testing.T) {
	b := newBroker(t, 1)
	for i, codec := range []kgo.CompressionCodec{kgo.GzipCompression(), kgo.SnappyCompression(), kgo.Lz4Compression(), kgo.ZstdCompression()} {
		producer := b.newClient(kgo.ProducerBatchCompression(codec))
		require.NoError(t, producer.ProduceSync(t.Context(), message(0, fmt.Sprintf("%d=%s", i, strings.Repeat("x", 1000)))).FirstErr())
	}
	require.Len(t, b.open(nil).readAll(), 4)
}

func TestBatchThatDecompressesTooLarge(t *testing.T) {
	b := newBroker(t, 1)
	producer := b.newClient(kgo.ProducerBatchCompression(kgo.ZstdCompression()), kgo.ProducerBatchMaxBytes(MaxBatchBytes+1<<20),
		kgo.BrokerMaxWriteBytes(MaxBatchBytes+2<<20))
	large := message(0, "1=")
	large.Value = make([]byte, MaxBatchBytes)
	require.NoError(t, producer.ProduceSync(t.Context(), large).FirstErr())
	_, err := b.open(nil).readUntilError()
	require.ErrorContains(t, err, "partition 0")
	require.ErrorIs(t, err, kgo.ErrMaxDecompress)
}

func TestTLSAndSASL(t *testing.T) {
	certificate, roots := testCertificate(t)
	const user, password = "reader", "secret"
	for _, mechanism := range []string{Plain, ScramSHA256, ScramSHA512} {
		t.Run(mechanism, func(t *testing.T) {
			cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "jobs"), kfake.TLS(&tls.Config{Certificates: []tls.Certificate{certificate}}),
				kfake.EnableSASL(), kfake.Superuser(strings.ToUpper(mechanism), user, password))
			require.NoError(t, err)
			defer cluster.Close()
			config := Config{
				Brokers: cluster.ListenAddrs(), Topic: "jobs", Decoder: envelope.Decoder{Format: envelope.Raw},
				TLS: &tls.Config{RootCAs: roots}, Mechanism: mechanism, User: user, Password: password,
			}
			producer, err := kgo.NewClient(config.clientOptions()...)
			require.NoError(t, err)
			defer producer.Close()
			require.NoError(t, producer.ProduceSync(t.Context(), message(0, "1=a")).FirstErr())
			b := &broker{Cluster: cluster, t: t}
			require.Equal(t, []string{"1=a"}, b.open(nil, func(c *Config) { *c = config }).readAll())

			if mechanism != Plain {
				return // the client repeats a failed login for some seconds
			}
			wrong := config
			wrong.Password = "wrong"
			require.ErrorContains(t, b.openError(nil, func(c *Config) { *c = wrong }), "kafka: opening topic jobs")
		})
	}
}

func testCertificate(t *testing.T) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	ca := testcert.NewCA(t, "ca")
	file, key := ca.Files(t, t.TempDir(), "localhost")
	certificate, err := tls.LoadX509KeyPair(file, key)
	require.NoError(t, err)
	roots := x509.NewCertPool()
	require.True(t, roots.AppendCertsFromPEM(ca.PEM))
	return certificate, roots
}

func TestConfigFaults(t *testing.T) {
	for _, test := range []struct {
		edit func(*Config)
		want string
	}{
		{func(c *Config) { c.Brokers = nil }, "no broker given"},
		{func(c *Config) { c.Brokers = []string{""} }, "no broker given"},
		{func(c *Config) { c.Topic = "" }, `invalid topic ""`},
		{func(c *Config) { c.Topic = strings.Repeat("t", 250) }, "want a name of 1 to 249 bytes"},
		{func(c *Config) { c.Topic = "a/b" }, `invalid topic "a/b"`},
		{func(c *Config) { c.Partitions = []int32{1, 1} }, "invalid partitions [1 1]"},
		{func(c *Config) { c.Partitions = []int32{-1} }, "invalid partitions [-1]"},
		{func(c *Config) { c.Partitions = []int32{PartitionLimit} }, "want different numbers below 16384"},
		{func(c *Config) { c.Partitions = make([]int32, MaxPartitions+1) }, "241 partitions given, and at most 240 are allowed"},
		{func(c *Config) { c.Mechanism = "gssapi"; c.User, c.Password = "u", "p" }, `unknown SASL mechanism "gssapi", want plain, scram-sha-256 or scram-sha-512`},
		{func(c *Config) { c.Mechanism = Plain }, "SASL mechanism plain needs a user and a password"},
		{func(c *Config) { c.User = "u" }, "a user or password is given without a SASL mechanism"},
		{func(c *Config) { c.Decoder.Format = "avro" }, `unknown format "avro"`},
	} {
		c := Config{Brokers: []string{"localhost:1"}, Topic: "jobs", Decoder: envelope.Decoder{Format: envelope.Raw}}
		test.edit(&c)
		_, err := NewOpener(c)
		require.ErrorContains(t, err, test.want)
	}
}

func TestTooManyPartitions(t *testing.T) {
	b := newBroker(t, MaxPartitions+1)
	require.ErrorContains(t, b.openError(nil), "the topic has 241 partitions, and at most 240 are read; select some with partitions=")
}

func TestNoBroker(t *testing.T) {
	o, err := NewOpener(Config{Brokers: []string{"127.0.0.1:1"}, Topic: "jobs", Decoder: envelope.Decoder{Format: envelope.Raw}})
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err = o.Open(ctx, nil)
	require.ErrorContains(t, err, "kafka: opening topic jobs of [127.0.0.1:1]")
}

func TestCursorOfAnotherTopic(t *testing.T) {
	b := newBroker(t, 1)
	cursor := (&position{topic: "users", cluster: "c1", partitions: 1}).encode()
	require.ErrorContains(t, b.openError(cursor), "the queue's cursor is of topic users, not of jobs")
	_, err := b.opener().Earliest([][]byte{cursor})
	require.ErrorContains(t, err, "of topic users")
	_, err = b.opener().Earliest([][]byte{[]byte("DSUC")})
	require.ErrorContains(t, err, "is not one of Kafka")
}

func TestEarliestCursor(t *testing.T) {
	b := newBroker(t, 2)
	b.produce(0, "0=a", "1=a")
	b.produce(1, "2=a")
	cursor := b.open(nil).mustRead(3)
	o := b.opener()
	got, err := o.Earliest([][]byte{cursor, cursor})
	require.NoError(t, err)
	require.Equal(t, cursor, got)
	got, err = o.Earliest([][]byte{cursor, nil})
	require.NoError(t, err)
	require.Empty(t, got, "a shard without cursor needs all records")
}

// TestRandomHistory reads while messages are produced, committed and aborted, leaders move
// and the reader is reopened at random records; then the state equals that of the topic.
func TestRandomHistory(t *testing.T) {
	random := testseed.Rand(t)
	b := newBroker(t, 3)
	producer := b.newClient(kgo.TransactionalID("tx"))
	want, got := map[string]string{}, map[string]string{}
	var cursor []byte
	read := func(stop int) {
		src, err := b.opener().Open(t.Context(), cursor)
		require.NoError(t, err)
		defer src.Close()
		for {
			batch, err := src.Next(t.Context())
			if errors.Is(err, io.EOF) {
				return
			}
			require.NoError(t, err)
			for i, r := range batch.Records {
				if stop--; stop < 0 {
					return // a crash
				}
				if got[string(r.ID)] = string(r.Document); r.Delete {
					delete(got, string(r.ID))
				}
				cursor = batch.AppendCursor(nil, i)
			}
		}
	}
	for range 60 {
		switch random.IntN(8) {
		case 0:
			b.ShufflePartitionLeaders()
		case 1:
			read(random.IntN(60))
		default:
			require.NoError(t, producer.BeginTransaction())
			commit := kgo.TransactionEndTry(random.IntN(4) > 0)
			for range 1 + random.IntN(5) {
				id := random.IntN(20)
				m := message(int32(id%3), fmt.Sprintf("%d=%d", id, random.Uint32()))
				if random.IntN(5) == 0 {
					m.Value = nil
				}
				require.NoError(t, producer.ProduceSync(t.Context(), m).FirstErr())
				if !commit {
					continue
				}
				if want[string(m.Key)] = string(m.Value); m.Value == nil {
					delete(want, string(m.Key))
				}
			}
			require.NoError(t, producer.EndTransaction(t.Context(), commit))
		}
	}
	read(math.MaxInt)
	require.Equal(t, want, got)
}
