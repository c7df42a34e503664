package bucket_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/internal/virtualtime"
	"docstore/queue/bucket"
)

// TestFault checks which failures a Client repeats, and which requests were executed.
func TestFault(t *testing.T) {
	broken := errors.New("connection reset")
	for name, test := range map[string]struct {
		failure  bucket.Failure
		requests int   // of a Put
		err      error // of a Put
		slowed   int64
	}{
		"temporary":     {failure: bucket.Failure{Err: broken}, requests: 2},
		"slow down":     {failure: bucket.Failure{Err: broken, SlowDown: true}, requests: 2, slowed: 1},
		"lost response": {failure: bucket.Failure{Err: broken, Executed: true}, requests: 2, err: bucket.ErrExist},
		"denied":        {failure: bucket.Failure{Err: bucket.ErrDenied}, requests: 1, err: bucket.ErrDenied},
		"no bucket":     {failure: bucket.Failure{Err: bucket.ErrNoBucket}, requests: 1, err: bucket.ErrNoBucket},
		"clock":         {failure: bucket.Failure{Err: bucket.ErrClockSkew}, requests: 1, err: bucket.ErrClockSkew},
		"canceled":      {failure: bucket.Failure{Err: context.Canceled}, requests: 1, err: context.Canceled},
	} {
		t.Run(name, func(t *testing.T) {
			virtualtime.Test(t, func(t *testing.T) {
				requests := 0
				c, err := bucket.NewClient(bucket.NewFault(newMemory(t), func(context.Context, string, string) *bucket.Failure {
					if requests++; requests == 1 {
						return &test.failure
					}
					return nil
				}), bucket.Options{})
				require.NoError(t, err)
				require.ErrorIs(t, c.Put(t.Context(), "a", strings.NewReader("text"), 4), test.err)
				require.Equal(t, test.requests, requests)
				require.Equal(t, test.slowed, c.Stats().SlowDowns)
			})
		})
	}
}

// TestFaultWrongBody checks that one byte of a response differs, however it is read.
func TestFaultWrongBody(t *testing.T) {
	for at, want := range []string{"` text", "a!text", "a uext", "a tdxt"} {
		memory := newMemory(t)
		require.NoError(t, putObject(t, memory, "a", []byte("a text")))
		b := bucket.NewFault(memory, func(context.Context, string, string) *bucket.Failure {
			return &bucket.Failure{Wrong: true, Part: int64(at)}
		})
		body, err := b.Get(t.Context(), "a", 0, -1)
		require.NoError(t, err)
		got, err := io.ReadAll(iotest.OneByteReader(body))
		require.NoError(t, err)
		require.Equal(t, want, string(got))
	}
}

// TestFaultStallsBody checks that a stalled response is given up and continued.
func TestFaultStallsBody(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		memory, gets := newMemory(t), 0
		require.NoError(t, putObject(t, memory, "a", []byte("a text")))
		c, err := bucket.NewClient(bucket.NewFault(memory, func(context.Context, string, string) *bucket.Failure {
			if gets++; gets == 1 {
				return &bucket.Failure{Err: io.ErrUnexpectedEOF, Executed: true, Part: 2, Stalls: true}
			}
			return nil
		}), bucket.Options{StallTimeout: time.Minute})
		require.NoError(t, err)
		start := time.Now()
		require.NoError(t, requireObject(t, c, "a", []byte("a text")))
		require.GreaterOrEqual(t, time.Since(start), time.Minute)
		require.Equal(t, 2, gets)
	})
}
