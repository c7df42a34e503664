package updater

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"docstore/cmd/internal/cli"
)

// newTopic starts a broker with a topic of one partition and returns the URL of the topic, and
// a function that writes messages of the form KEY=VALUE; a value of "-" is null.
func newTopic(t *testing.T, options ...kfake.Opt) (url string, produce func(messages ...string)) {
	t.Helper()
	cluster, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(1), kfake.SeedTopics(1, "jobs")}, options...)...)
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	producer, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...), kgo.DefaultProduceTopic("jobs"))
	require.NoError(t, err)
	t.Cleanup(producer.Close)
	return "kafka://" + cluster.ListenAddrs()[0] + "/jobs", func(messages ...string) {
		t.Helper()
		for _, text := range messages {
			key, value, _ := strings.Cut(text, "=")
			m := kgo.KeyStringRecord(key, value)
			if value == "-" {
				m.Value = nil
			}
			require.NoError(t, producer.ProduceSync(t.Context(), m).FirstErr())
		}
	}
}

func TestFromKafka(t *testing.T) {
	url, produce := newTopic(t)
	queueDir := filepath.Join(t.TempDir(), "queue")
	from := func(args ...string) string {
		r := ok(t, "", append([]string{"append", "--queue", queueDir, "--from"}, args...)...)
		require.Contains(t, r.stderr, `"waiting_messages":0`)
		return dump(t, queueDir)
	}
	produce(`17={"id":"17","n":1}`, `18={"id":"18"}`, `17=-`)
	require.Equal(t, `{"id":"17","n":1}`+"\n"+`{"id":"18"}`+"\n"+`{"id":"17","_delete":true}`+"\n", from(url))
	produce(`19={"id":"19"}`)
	require.Contains(t, from(url+"?partitions=0"), `{"id":"17","_delete":true}`+"\n"+`{"id":"19"}`+"\n", "append resumes by default")

	r := run(t.Context(), nil, "append", "--queue", queueDir, "--resume", write(t, filepath.Join(t.TempDir(), "a.ndjson"), `{"id":"1"}`))
	require.Equal(t, cli.ExitFailure, r.status)
	require.Contains(t, r.lastLine(), "use --resume=false")
}

func TestFromKafkaWithTheIDInTheDocument(t *testing.T) {
	url, produce := newTopic(t)
	queueDir := filepath.Join(t.TempDir(), "queue")
	produce(`x={"sku":17}`, `y={"sku":"18","_delete":true}`)
	ok(t, "", "append", "--queue", queueDir, "--from", url+"?id=document", "--id-field", "sku")
	require.Equal(t, `{"sku":17}`+"\n"+`{"sku":"18","_delete":true}`+"\n", dump(t, queueDir, "--id-field", "sku"))
}

func TestFromKafkaStopsAtAnInvalidMessage(t *testing.T) {
	url, produce := newTopic(t)
	queueDir := filepath.Join(t.TempDir(), "queue")
	produce(`17={"id":"17"}`, `18=no`, `19={"id":"19"}`)
	args := []string{"append", "--queue", queueDir, "--from", url}
	r := run(t.Context(), nil, args...)
	require.Equal(t, cli.ExitFailure, r.status)
	require.Contains(t, r.lastLine(), "topic jobs, partition 0, offset 1: the value is not JSON")
	ok(t, "", append(args, "--skip-bad")...)
	require.Equal(t, `{"id":"17"}`+"\n"+`{"id":"19"}`+"\n", dump(t, queueDir))
}

func TestStreamURLsAreChecked(t *testing.T) {
	empty := write(t, filepath.Join(t.TempDir(), "password"), "\n")
	password := write(t, filepath.Join(t.TempDir(), "password"), "secret\n")
	urls := map[string]string{
		"kafka://a:1/jobs?sasl=x&user=u&password-file=" + password: `unknown SASL mechanism "x"`,
		"kafka://a:1/jobs?cert=" + empty:                           "set both or neither",
		"kafka://a:1/jobs?key=" + empty:                            "set both or neither",
		"nats://a:4222/JOBS?cert=" + empty:                         "set both or neither",
		"nats://a:4222/JOBS?key=" + empty:                          "set both or neither",
		"nats://a:4222/JOBS?ca=/none":                              "/none",
		"nats://a:4222/JOBS?tls=yes":                               "tls=yes: want true",
		"nats://a:4222/JOBS?user=me":                               "set both user and password-file, or neither",
		"nats://a:4222/JOBS?password-file=" + password:             "set both user and password-file, or neither",
		"kafka://a:x/jobs":                                         "invalid URL",
		"kafka:///jobs":                                            "want kafka://HOST:PORT[,...]/TOPIC",
		"kafka://a:1,/jobs":                                        "want kafka://HOST:PORT[,...]/TOPIC",
		"kafka://a:1":                                              "want kafka://HOST:PORT[,...]/TOPIC",
		"kafka://a:1/jobs/more":                                    "want kafka://HOST:PORT[,...]/TOPIC",
		"kafka://a:1/jobs#x":                                       "want kafka://HOST:PORT[,...]/TOPIC",
		"kafka://me:secret@a:1/jobs":                               "--from kafka://me:xxxxx@a:1/jobs: write user=NAME&password-file=FILE",
		"kafka://a:1/jobs?group=x":                                 `unknown option "group", want format, id, table, partitions, sasl, tls`,
		"kafka://a:1/jobs?format=":                                 "option format needs one value",
		"kafka://a:1/jobs?format=raw&format=json":                  "option format needs one value",
		"kafka://a:1/jobs?%zz":                                     "invalid options",
		"kafka://a:1/jobs?format=avro":                             `unknown format "avro", want json, raw, debezium or maxwell`,
		"kafka://a:1/jobs?format=maxwell":                          "format maxwell needs a table",
		"kafka://a:1/jobs?id=value":                                "id=value: want key or document",
		"kafka://a:1/jobs?id=document&format=raw":                  "the id of format raw is the key of the message",
		"kafka://a:1/jobs?table=a.b":                               "format json has no table",
		"kafka://a:1/jobs?tls=yes":                                 "tls=yes: want true",
		"kafka://a:1/jobs?user=me":                                 "set both user and password-file, or neither",
		"kafka://a:1/jobs?sasl=plain":                              "SASL mechanism plain needs a user and a password",
		"kafka://a:1/jobs?sasl=x&user=u&password-file=/none":       "no such file",
		"kafka://a:1/jobs?user=u&password-file=" + empty:           "want a password of 1 to 4096 bytes",
		"kafka://a:1/jobs?ca=/none":                                "/none",
		"kafka://a:1/jobs?partitions=3-1":                          "partitions=3-1: want ascending numbers and ranges below 16384, such as 0-7,9",
		"kafka://a:1/jobs?partitions=1,1":                          "want ascending numbers",
		"kafka://a:1/jobs?partitions=-1":                           "want ascending numbers",
		"kafka://a:1/jobs?partitions=99999":                        "want ascending numbers",
		"nats://a:4222":                                            "want nats://HOST:PORT[,...]/STREAM",
		"nats://a:4222/JOBS?group=x":                               `unknown option "group", want subject, id, format, creds, tls`,
		"nats://a:4222/JOBS?subject=jobs":                          `subject "jobs" is the same for all messages`,
		"nats://a:4222/JOBS?subject=a..b":                          `invalid subject "a..b"`,
		"nats://a:4222/JOBS?id=key":                                `invalid id "key", want subject, document or header:NAME`,
		"nats://a:4222/JOBS?format=maxwell":                        `format "maxwell": want json or raw`,
		"nats://a:4222/JOBS?creds=/none":                           "no such file",
		"nats://a:4222/JO.BS":                                      `invalid stream "JO.BS"`,
		"kafka://a:1/jobs?partitions=0-300":                        "301 partitions given, and at most 240 are allowed",
	}
	for url, want := range urls {
		r := run(t.Context(), nil, "append", "--queue", filepath.Join(t.TempDir(), "queue"), "--from", url)
		require.NotEqual(t, cli.ExitOK, r.status, url)
		require.Contains(t, r.lastLine(), want, url)
		require.NotContains(t, r.stderr, "secret")
	}
	// Each option has a test.
	for _, scheme := range []string{"kafka://", "nats://"} {
		message := fromFailure(t, cli.ExitUsage, "--from", scheme+"a:1/jobs?unknown=x")
		_, list, _ := strings.Cut(message, "want ")
		list, _, _ = strings.Cut(list, ";")
		for option := range strings.SplitSeq(list, ", ") {
			require.True(t, slices.ContainsFunc(slices.Collect(maps.Keys(urls)), func(url string) bool {
				return strings.HasPrefix(url, scheme) && (strings.Contains(url, "?"+option+"=") || strings.Contains(url, "&"+option+"="))
			}), "%s %s", scheme, option)
		}
	}
}
