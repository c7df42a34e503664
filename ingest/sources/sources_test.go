package sources

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestCursorOfAnotherSource: the error of each source names the option that appends from the start;
// with --from append resumes by default.
func TestCursorOfAnotherSource(t *testing.T) {
	t.Setenv("AWS_REGION", "us-east-1")
	for url, want := range map[string]string{
		"file:///etc/":                           "the queue's cursor was not written by docstore-updater; use --resume=false",
		"s3://docs/":                             "the queue's cursor was not written by docstore-updater; use --resume=false",
		"kafka://host:9092/jobs":                 "the queue's cursor is not one of Kafka; use --resume=false to append the topic from its start",
		"nats://host:4222/JOBS":                  "the queue's cursor is not one of NATS; use --resume=false to append the stream from its start",
		"postgres://db/d?table=a":                "the queue's cursor was not written by a PostgreSQL source; use another queue, or append from the start with --resume=false",
		"postgres://db/d?query=SELECT%201&key=a": "the queue's cursor was not written by a PostgreSQL source; use another queue, or append from the start with --resume=false",
	} {
		in, err := Open(t.Context(), url, Options{})
		require.NoError(t, err, url)
		_, err = in.Opener.Position([]byte("another"))
		require.EqualError(t, err, want, url)
	}
}

func TestParseRanges(t *testing.T) {
	got, err := parseRanges("0-2,5,7-7", 8)
	require.NoError(t, err)
	require.Equal(t, []int32{0, 1, 2, 5, 7}, got)
}
