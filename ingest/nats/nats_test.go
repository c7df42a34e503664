package nats

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

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"docstore/ingest"
	"docstore/ingest/envelope"
	"docstore/internal/natstest"
	"docstore/internal/testcert"
	"docstore/internal/testseed"
	"docstore/queue"
)

const testTimeout = 30 * time.Second

// broker is a server with a stream, over TCP.
type broker struct {
	*natstest.Server
	t  *testing.T
	js jetstream.JetStream
}

func newBroker(t *testing.T, edit ...func(*jetstream.StreamConfig)) *broker {
	t.Helper()
	b := &broker{Server: natstest.Start(t), t: t}
	connection, err := natsgo.Connect(b.Address, natsgo.MaxReconnects(-1), natsgo.ReconnectWait(10*time.Millisecond))
	require.NoError(t, err)
	t.Cleanup(connection.Close)
	b.js, err = jetstream.New(connection)
	require.NoError(t, err)
	b.create(edit...)
	return b
}

func (b *broker) create(edit ...func(*jetstream.StreamConfig)) {
	b.t.Helper()
	config := jetstream.StreamConfig{Name: "JOBS", Subjects: []string{"jobs.>", "other"}, AllowMsgTTL: true}
	for _, f := range edit {
		f(&config)
	}
	_, err := b.js.CreateStream(b.t.Context(), config)
	require.NoError(b.t, err)
}

func (b *broker) stream() jetstream.Stream {
	b.t.Helper()
	stream, err := b.js.Stream(b.t.Context(), "JOBS")
	require.NoError(b.t, err)
	return stream
}

// publish writes messages of the form ID=VALUE to the subject jobs.ID. A value of "-" is a
// delete.
func (b *broker) publish(messages ...string) {
	b.t.Helper()
	for _, text := range messages {
		id, value, _ := strings.Cut(text, "=")
		m := &natsgo.Msg{Subject: "jobs." + id, Data: []byte(value)}
		if value == "-" {
			m.Data, m.Header = nil, natsgo.Header{operationHeader: {"DEL"}}
		}
		_, err := b.js.PublishMsg(b.t.Context(), m)
		require.NoError(b.t, err)
	}
}

func (b *broker) config(edit ...func(*Config)) Config {
	c := Config{
		Servers: []string{b.Address}, Stream: "JOBS", Subject: "jobs.*", ID: IDOfSubject,
		Decoder: envelope.Decoder{Format: envelope.Raw},
	}
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

func (b *broker) openError(cursor []byte, edit ...func(*Config)) error {
	b.t.Helper()
	src, err := b.opener(edit...).Open(b.t.Context(), cursor)
	if err == nil {
		src.Close()
	}
	require.Error(b.t, err)
	return err
}

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
	}
	return got, nil
}

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

func (r *reader) readUntilError() (got []string, err error) {
	for {
		batch, err := r.next()
		if err != nil {
			return got, err
		}
		got = append(got, batch...)
	}
}

func (r *reader) readAll() []string {
	r.t.Helper()
	got, err := r.readUntilError()
	require.ErrorIs(r.t, err, io.EOF)
	return got
}

// mustRead reads n records and returns the cursor.
func (r *reader) mustRead(n int) []byte {
	r.t.Helper()
	r.read(n)
	return r.cursor
}

func TestReadAndResume(t *testing.T) {
	b := newBroker(t)
	require.Empty(t, b.open(nil).readAll())
	b.publish("1=a", "2=b", "1=-", "3=")
	r := b.open(nil)
	require.Equal(t, []string{"1=a", "2=b", "1=-", "3="}, r.readAll())
	require.Empty(t, b.open(r.cursor).readAll())
	b.publish("4=d")
	require.Equal(t, []string{"4=d"}, b.open(r.cursor).readAll())
}

// TestEveryCursorContinues resumes behind each record.
func TestEveryCursorContinues(t *testing.T) {
	b := newBroker(t)
	var all []string
	for i := range 8 {
		all = append(all, fmt.Sprintf("%d=v", i))
	}
	b.publish(all...)
	r, at := b.open(nil), 0
	for at < len(all) {
		batch, err := r.src.Next(t.Context())
		require.NoError(t, err)
		require.True(t, batch.Ends)
		for i := range batch.Records {
			at++
			cursor := batch.AppendCursor(nil, i)
			require.Equal(t, append([]string(nil), all[at:]...), b.open(cursor).readAll())
			p, err := b.opener().Position(cursor)
			require.NoError(t, err)
			for k := range batch.Records {
				require.Equal(t, k <= i, batch.Included(p, k))
			}
			require.Equal(t, fmt.Sprintf("stream JOBS, message %d", at), batch.Place(i))
		}
	}
}

func TestFollowWaitsForMessages(t *testing.T) {
	b := newBroker(t)
	r := b.open(nil, follow)
	b.publish("1=a")
	require.Equal(t, []string{"1=a"}, r.read(1))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := r.src.Next(ctx)
	require.ErrorIs(t, err, context.Canceled)
	b.publish("2=b")
	require.Equal(t, []string{"2=b"}, r.read(1))
}

func TestIDs(t *testing.T) {
	b := newBroker(t)
	_, err := b.js.PublishMsg(t.Context(), &natsgo.Msg{Subject: "jobs.a.b.c", Data: []byte(`{"id":1}`), Header: natsgo.Header{"X-Id": {"h"}}})
	require.NoError(t, err)
	_, err = b.js.PublishMsg(t.Context(), &natsgo.Msg{Subject: "other", Data: []byte(`{"id":2}`)})
	require.NoError(t, err)
	for _, test := range []struct {
		subject, id string
		want        []string
	}{
		{"", IDOfSubject, []string{`jobs.a.b.c={"id":1}`, `other={"id":2}`}},
		{"jobs.>", IDOfSubject, []string{`a.b.c={"id":1}`}},
		{"jobs.*.b.*", IDOfSubject, []string{`a.c={"id":1}`}},
		{"jobs.*.b.>", IDOfSubject, []string{`a.c={"id":1}`}},
		{"jobs.a.b.c", IDOfHeader + "X-Id", []string{`h={"id":1}`}},
		{"other", IDOfHeader + "X-Id", []string{"invalid: the message has no header X-Id, which is the id"}},
		{"other", IDOfDocument, []string{`={"id":2}`}},
	} {
		require.Equal(t, test.want, b.open(nil, func(c *Config) {
			c.Subject, c.ID, c.Decoder.Format = test.subject, test.id, envelope.JSON
		}).readAll())
	}
}

func TestBucketOfKeysAndValues(t *testing.T) {
	b := newBroker(t)
	kv, err := b.js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: "jobs"})
	require.NoError(t, err)
	put := func(id, value string) {
		_, err := kv.Put(t.Context(), id, []byte(value))
		require.NoError(t, err)
	}
	bucket := func(c *Config) { c.Stream, c.Subject = "KV_jobs", "$KV.jobs.>" }
	put("a.1", "x")
	put("b", "y")
	put("c", "z")
	cursor := b.open(nil, bucket).mustRead(3)
	// Each key keeps its last value: those read disappear, and so do some not read yet.
	put("a.1", "x2")
	require.NoError(t, kv.Delete(t.Context(), "b"))
	require.NoError(t, kv.Purge(t.Context(), "c"))
	put("a.1", "x3")
	require.Equal(t, []string{"b=-", "c=-", "a.1=x3"}, b.open(cursor, bucket).readAll())
}

func TestMessagesDeletedIndividually(t *testing.T) {
	b := newBroker(t)
	b.publish("1=a", "2=b", "3=c", "4=d")
	r := b.open(nil)
	batch, err := r.src.Next(t.Context())
	require.NoError(t, err)
	require.NoError(t, b.stream().DeleteMsg(t.Context(), 3))
	require.Equal(t, []string{"2=b", "4=d"}, b.open(batch.AppendCursor(nil, 0)).readAll())
	require.NoError(t, b.stream().DeleteMsg(t.Context(), 4))
	require.Equal(t, []string{"2=b"}, b.open(batch.AppendCursor(nil, 0)).readAll(), "the end is missing")
}

// TestEndIsDeletedWhileReading: the last messages disappear before they are read.
func TestEndIsDeletedWhileReading(t *testing.T) {
	b := newBroker(t)
	b.publish("1=a", "2=b")
	require.NoError(t, b.stream().DeleteMsg(t.Context(), 2))
	s := b.open(nil).src.(*Source)
	// The state of a source that expects message 2.
	s.end = 2
	r := &reader{t: t, src: s}
	batch, err := s.Next(t.Context())
	require.NoError(t, err)
	require.Len(t, batch.Records, 1)
	s.done = false
	require.Empty(t, r.readAll(), "the watcher ends it")
}

func TestDiscardedMessages(t *testing.T) {
	b := newBroker(t, func(c *jetstream.StreamConfig) { c.MaxMsgs = 3 })
	b.publish("1=a", "2=b", "3=c")
	batch, err := b.open(nil).src.Next(t.Context())
	require.NoError(t, err)
	cursor := batch.AppendCursor(nil, 0)
	b.publish("4=d")
	require.Equal(t, []string{"2=b", "3=c", "4=d"}, b.open(cursor).readAll())
	b.publish("5=e")
	require.ErrorContains(t, b.openError(cursor), "the messages 2 to 2 were discarded before they were read; the queue may differ from the stream")
	require.Equal(t, []string{"3=c", "4=d", "5=e"}, b.open(nil).readAll())
	require.NoError(t, b.stream().Purge(t.Context()))
	require.ErrorContains(t, b.openError(cursor), "the messages 2 to 5 were discarded before they were read")
}

func TestMessagesDiscardedWhileReading(t *testing.T) {
	b := newBroker(t, func(c *jetstream.StreamConfig) { c.MaxMsgs = 3 })
	b.publish("1=a")
	opener := b.opener(follow)
	opener.watchInterval = time.Hour // the watching goroutine uses the consumer that the test replaces
	src, err := opener.Open(t.Context(), nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, src.Close()) })
	r := &reader{t: t, src: src}
	r.read(1)
	// The connection is away while messages arrive and are discarded.
	s := src.(*Source)
	s.consuming.Stop()
	<-s.consuming.Closed()
	b.publish("2=b", "3=c", "4=d", "5=e")
	s.consumer, err = b.js.OrderedConsumer(t.Context(), "JOBS", jetstream.OrderedConsumerConfig{
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: 2,
	})
	require.NoError(t, err)
	s.consuming, err = s.consumer.Consume(s.receive)
	require.NoError(t, err)
	got, err := r.readUntilError()
	require.Empty(t, got)
	require.ErrorContains(t, err, "nats: reading stream JOBS: the messages 2 to 2 were discarded before they were read")
}

func TestUnverifiedMessages(t *testing.T) {
	s := &Source{at: position{last: 4}}
	s.read.Store(&delivered{consumer: "a", number: 4})
	of := func(consumer string, sequences ...uint64) (messages []message) {
		for _, sequence := range sequences {
			messages = append(messages, message{sequence: sequence, delivered: delivered{consumer: consumer}})
		}
		return messages
	}
	for _, test := range []struct {
		messages []message
		next     uint64
		another  bool
	}{
		{of("a", 5, 6), 0, false},
		{of("a", 6, 7), 5, false},
		{of("a", 5, 6, 9), 7, false},
		{append(of("a", 5), of("b", 6)...), 6, true},
		{append(of("a", 6), of("b", 7)...), 5, true},
	} {
		next, another := s.unverified(test.messages)
		require.Equal(t, test.next, next)
		require.Equal(t, test.another, another)
	}
}

func TestReplacedMessagesAreNotMissed(t *testing.T) {
	b := newBroker(t, func(c *jetstream.StreamConfig) { c.MaxMsgsPerSubject = 1 })
	b.publish("1=a", "2=b")
	cursor := b.open(nil).mustRead(2)
	b.publish("3=c", "1=d", "2=e", "3=f")
	require.Equal(t, []string{"1=d", "2=e", "3=f"}, b.open(cursor).readAll())
	require.ErrorContains(t, b.openError(cursor, func(c *Config) { c.ID = IDOfDocument; c.Decoder.Format = envelope.JSON }),
		"the messages 3 to 3 were discarded", "another id is not replaced")
}

func TestStreamsThatDiscardReadMessages(t *testing.T) {
	b := newBroker(t, func(c *jetstream.StreamConfig) { c.Retention = jetstream.WorkQueuePolicy })
	require.ErrorContains(t, b.openError(nil), "the stream has retention WorkQueue, which discards a message when a consumer has acknowledged it")
}

func TestRecreatedStream(t *testing.T) {
	b := newBroker(t)
	b.publish("1=a", "2=b")
	cursor := b.open(nil).mustRead(2)
	following := b.open(cursor, follow)
	following.src.(*Source).fail(nil) // without watcher: the messages themselves are checked
	s := following.src.(*Source)
	s.watching.Wait()
	s.failed, s.fail = context.WithCancelCause(t.Context())
	require.NoError(t, b.js.DeleteStream(t.Context(), "JOBS"))
	require.ErrorContains(t, b.openError(cursor), "the stream does not exist")
	b.create()
	b.publish("7=x", "8=x", "9=x")
	require.ErrorContains(t, b.openError(cursor), "the stream was deleted and created again")
	got, err := following.readUntilError()
	require.Empty(t, got)
	require.ErrorContains(t, err, "the stream was deleted and created again")
}

func TestDeletedStreamEndsReading(t *testing.T) {
	b := newBroker(t)
	b.publish("1=a")
	r := b.open(nil, follow)
	r.read(1)
	require.NoError(t, b.js.DeleteStream(t.Context(), "JOBS"))
	_, err := r.readUntilError()
	require.ErrorContains(t, err, "nats: reading stream JOBS: the stream was deleted")
}

func TestServerRestarts(t *testing.T) {
	b := newBroker(t)
	b.publish("1=a")
	r := b.open(nil, follow)
	r.read(1)
	b.Stop()
	b.Restart()
	b.publish("2=b", "3=c")
	require.Equal(t, []string{"2=b", "3=c"}, r.read(2))
	require.Empty(t, b.open(r.cursor).readAll())
}

func TestOlderCopyOfAStream(t *testing.T) {
	b := newBroker(t)
	b.publish("1=a")
	p, err := parsePosition(b.open(nil).mustRead(1))
	require.NoError(t, err)
	p.last = 5
	require.ErrorContains(t, b.openError(p.append(nil)), "the messages 2 to 5 were read, and the stream ends before them")
}

// TestRestoredStream: the files of the server are replaced by an older copy, which is then written
// past the cursor.
func TestRestoredStream(t *testing.T) {
	for _, test := range []struct {
		name    string
		edit    func(*jetstream.StreamConfig)
		later   []string
		noError bool
	}{
		{"all messages", func(*jetstream.StreamConfig) {}, []string{"6=f", "7=g", "8=h", "9=i"}, false},
		{"the last one is replaced", func(c *jetstream.StreamConfig) { c.MaxMsgsPerSubject = 1 }, []string{"5=f", "7=g", "8=h", "7=i"}, false},
		{"the same messages", func(*jetstream.StreamConfig) {}, nil, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := newBroker(t, test.edit)
			b.publish("1=a", "2=b")
			before := b.open(nil).mustRead(2)
			b.Stop()
			restore := b.Snapshot()
			b.Restart()
			following := b.open(before, follow)
			if test.noError {
				require.Empty(t, b.open(before).readAll())
				b.publish("4=d")
				require.Equal(t, []string{"4=d"}, b.open(before).readAll())
				return
			}
			b.publish("3=c", "4=d", "5=e")
			cursor := following.mustRead(3)
			require.Empty(t, b.open(cursor).readAll())
			b.Stop()
			restore()
			b.Restart()
			require.ErrorContains(t, b.openError(cursor), "the stream ends before them")
			b.publish(test.later...)
			const want = "an older copy of the stream was restored"
			require.ErrorContains(t, b.openError(cursor), want)
			_, err := following.readUntilError()
			require.ErrorContains(t, err, want)
			// The earliest cursor of the shards is one that has lost nothing.
			o := b.opener()
			from, err := o.Earliest([][]byte{before, cursor})
			require.NoError(t, err)
			require.ErrorContains(t, errorOf(o.Open(t.Context(), from)), want)
			b.open(before).readAll()
		})
	}
}

// TestExpiringBucket: without markers the documents of expired keys would stay.
func TestExpiringBucket(t *testing.T) {
	b := newBroker(t)
	bucket := func(c *Config) { c.Stream, c.Subject = "KV_jobs", "$KV.jobs.>" }
	config := jetstream.KeyValueConfig{Bucket: "jobs", TTL: time.Hour}
	_, err := b.js.CreateKeyValue(t.Context(), config)
	require.NoError(t, err)
	require.ErrorContains(t, b.openError(nil, bucket), "the bucket's keys expire without a message")
	config.TTL = 0
	_, err = b.js.UpdateKeyValue(t.Context(), config)
	require.NoError(t, err)
	r := b.open(nil, bucket, follow)
	config.TTL = time.Hour
	_, err = b.js.UpdateKeyValue(t.Context(), config)
	require.NoError(t, err)
	_, err = r.readUntilError()
	require.ErrorContains(t, err, "the bucket's keys expire without a message", "the watcher finds it")
	config.LimitMarkerTTL = time.Hour
	_, err = b.js.UpdateKeyValue(t.Context(), config)
	require.NoError(t, err)
	require.Empty(t, b.open(nil, bucket).readAll())
}

func TestLag(t *testing.T) {
	b := newBroker(t)
	b.publish("1=a", "2=b")
	r := b.open(nil, follow)
	n, unit := r.src.Lag()
	require.EqualValues(t, 2, n)
	require.Equal(t, "messages", unit)
	r.read(2)
	require.Eventually(t, func() bool { n, _ := r.src.Lag(); return n == 0 }, testTimeout, time.Millisecond)
}

func TestManyMessages(t *testing.T) {
	b := newBroker(t)
	const n = 3000
	value := []byte(strings.Repeat("x", 1<<10))
	for i := range n {
		_, err := b.js.PublishAsync(fmt.Sprintf("jobs.%d", i), value)
		require.NoError(t, err)
		if i%1000 == 999 {
			<-b.js.PublishAsyncComplete()
		}
	}
	got := b.open(nil).readAll()
	require.Len(t, got, n)
	for i, record := range got {
		id, _, _ := strings.Cut(record, "=")
		require.Equal(t, fmt.Sprint(i), id)
	}
}

func TestTLSAndUsers(t *testing.T) {
	ca := testcert.NewCA(t, "ca")
	file, key := ca.Files(t, t.TempDir(), "localhost")
	roots := x509.NewCertPool()
	require.True(t, roots.AppendCertsFromPEM(ca.PEM))
	b := &broker{t: t, Server: natstest.Start(t,
		fmt.Sprintf("tls { cert_file: %q, key_file: %q, timeout: 5 }", file, key), "authorization { user: reader, password: secret }")}
	secure := func(c *Config) { c.TLS, c.User, c.Password = &tls.Config{RootCAs: roots}, "reader", "secret" }
	config := b.config(secure)
	connection, err := natsgo.Connect(b.Address, config.connectOptions()...)
	require.NoError(t, err)
	defer connection.Close()
	b.js, err = jetstream.New(connection)
	require.NoError(t, err)
	b.create()
	b.publish("1=a")
	require.Equal(t, []string{"1=a"}, b.open(nil, secure).readAll())
	require.ErrorContains(t, b.openError(nil, secure, func(c *Config) { c.Password = "wrong" }), "nats: opening stream JOBS")
	require.ErrorContains(t, b.openError(nil, secure, func(c *Config) { c.TLS = &tls.Config{} }), "certificate")
}

func TestConfigFaults(t *testing.T) {
	for _, test := range []struct {
		edit func(*Config)
		want string
	}{
		{func(c *Config) { c.Servers = nil }, "no server given"},
		{func(c *Config) { c.Stream = "" }, `invalid stream ""`},
		{func(c *Config) { c.Stream = "a.b" }, `invalid stream "a.b"`},
		{func(c *Config) { c.Subject = "a..b" }, `invalid subject "a..b"`},
		{func(c *Config) { c.Subject = "a.>.b" }, `invalid subject "a.>.b"`},
		{func(c *Config) { c.Subject = "a.b*" }, `invalid subject "a.b*"`},
		{func(c *Config) { c.Subject = "a." + strings.Repeat("x", maxSubjectBytes) }, "invalid subject"},
		{func(c *Config) { c.Subject = "jobs" }, `subject "jobs" is the same for all messages and cannot be the id`},
		{func(c *Config) { c.ID = "header:" }, `invalid id "header:", want subject, document or header:NAME`},
		{func(c *Config) { c.ID = "" }, `invalid id ""`},
		{func(c *Config) { c.Decoder.Format = envelope.Debezium }, `format "debezium": want json or raw`},
		{func(c *Config) { c.ID = IDOfDocument }, "the id of format raw is the key of the message"},
		{func(c *Config) { c.User, c.Credentials = "u", "f" }, "a user and credentials are given"},
	} {
		c := Config{Servers: []string{"localhost:1"}, Stream: "JOBS", ID: IDOfSubject, Decoder: envelope.Decoder{Format: envelope.Raw}}
		test.edit(&c)
		_, err := NewOpener(c)
		require.ErrorContains(t, err, test.want)
	}
}

func TestNoServer(t *testing.T) {
	o, err := NewOpener(Config{Servers: []string{"127.0.0.1:1"}, Stream: "JOBS", ID: IDOfSubject, Decoder: envelope.Decoder{Format: envelope.Raw}})
	require.NoError(t, err)
	_, err = o.Open(t.Context(), nil)
	require.ErrorContains(t, err, "nats: opening stream JOBS of [127.0.0.1:1]")
}

func TestCursors(t *testing.T) {
	p := &position{created: 1, last: 258, content: content{time: 3, crc: 4}, stream: "JOBS"}
	cursor := p.append(nil)
	require.Equal(t, "DSNA\x01\x01\x00\x00\x00\x00\x00\x00\x00\x02\x01\x00\x00\x00\x00\x00\x00"+
		"\x03\x00\x00\x00\x00\x00\x00\x00\x04\x00\x00\x00JOBS", string(cursor))
	again, err := parsePosition(cursor)
	require.NoError(t, err)
	require.Equal(t, p, again)
	earlier, err := parsePosition([]byte("DSNA\x00\x01\x00\x00\x00\x00\x00\x00\x00\x02\x01\x00\x00\x00\x00\x00\x00JOBS"))
	require.NoError(t, err)
	require.Equal(t, &position{created: 1, last: 258, stream: "JOBS"}, earlier)
	for cursor, want := range map[string]string{
		"DSUC\x00":                        "is not one of NATS",
		"DSNA":                            "is damaged",
		"DSNA\x02":                        "of version 2, newer than this program",
		string(cursor[:33]):               "is damaged",
		"DSNA\x00" + string(cursor[5:21]): "is damaged",
		strings.Repeat("DSNA", 1e3):       "of version",
		string(append(cursor[:33:33], make([]byte, maxStreamBytes+1)...)): "is damaged",
	} {
		_, err := parsePosition([]byte(cursor))
		require.ErrorContains(t, err, want)
	}
	require.LessOrEqual(t, 4+1+8+8+8+4+maxStreamBytes, queue.MaxCursorBytes)
}

func TestEarliest(t *testing.T) {
	o, err := NewOpener(Config{Servers: []string{"localhost:1"}, Stream: "JOBS", ID: IDOfSubject, Decoder: envelope.Decoder{Format: envelope.Raw}})
	require.NoError(t, err)
	at := func(created int64, last uint64, stream string) []byte {
		return (&position{created: created, last: last, stream: stream}).append(nil)
	}
	got, err := o.Earliest([][]byte{at(1, 7, "JOBS"), at(1, 5, "JOBS"), at(1, 9, "JOBS")})
	require.NoError(t, err)
	require.Equal(t, at(1, 5, "JOBS"), got)
	got, err = o.Earliest([][]byte{at(1, 7, "JOBS"), nil})
	require.NoError(t, err)
	require.Empty(t, got)
	got, err = o.Earliest(nil)
	require.NoError(t, err)
	require.Empty(t, got)
	_, err = o.Earliest([][]byte{at(1, 7, "JOBS"), at(2, 5, "JOBS")})
	require.ErrorContains(t, err, "of different streams")
	_, err = o.Earliest([][]byte{at(1, 7, "USERS")})
	require.ErrorContains(t, err, "of stream USERS, not of JOBS")
	require.ErrorContains(t, errorOf(o.Open(t.Context(), at(1, 7, "USERS"))), "of stream USERS, not of JOBS")
	_, err = o.Earliest([][]byte{[]byte("DSKA")})
	require.ErrorContains(t, err, "is not one of NATS")
}

func errorOf(_ ingest.Source, err error) error { return err }

func FuzzWildcardPart(f *testing.F) {
	f.Add("a.*.>", "x", "y.z")
	f.Add("*", "x", "")
	f.Fuzz(func(t *testing.T, subject, first, second string) {
		if !validSubject(subject) || !validSubject(first) || strings.ContainsAny(first, ".*>") || !validSubject(second) || strings.ContainsAny(second, "*>") {
			return
		}
		pattern := strings.Split(subject, ".")
		var full, want []string
		for _, word := range pattern {
			switch word {
			case "*":
				full, want = append(full, first), append(want, first)
			case ">":
				full, want = append(full, second), append(want, second)
			default:
				full = append(full, word)
			}
		}
		require.Equal(t, strings.Join(want, "."), wildcardPart(pattern, strings.Join(full, ".")))
	})
}

// TestRandomHistory reads while messages are published, deleted individually, and the reader
// is reopened at random records; then the state equals that of the stream.
func TestRandomHistory(t *testing.T) {
	random := testseed.Rand(t)
	b := newBroker(t, func(c *jetstream.StreamConfig) { c.MaxMsgsPerSubject = 3; c.Storage = jetstream.MemoryStorage })
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
		if random.IntN(6) == 0 {
			read(random.IntN(60))
			continue
		}
		for range 1 + random.IntN(10) {
			id, value := fmt.Sprint(random.IntN(20)), fmt.Sprint(random.Uint32())
			if random.IntN(5) == 0 {
				value = "-"
			}
			b.publish(id + "=" + value)
			if want[id] = value; value == "-" {
				delete(want, id)
			}
		}
	}
	read(math.MaxInt)
	require.Equal(t, want, got)
}
