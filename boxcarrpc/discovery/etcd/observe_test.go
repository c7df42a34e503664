//go:build linux

package etcd

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestAnswersOfEtcdAreObserved: requests and the messages of watches report whether etcd answers.
func TestAnswersOfEtcdAreObserved(t *testing.T) {
	s := newEtcd(t, "http")
	s.start(t)
	var answers, failures atomic.Int64
	client, err := Connect(s.target(""), &Options{CallTimeout: time.Second, Observe: func(err error) {
		if err == nil {
			answers.Add(1)
		} else {
			failures.Add(1)
		}
	}})
	require.NoError(t, err)
	defer func() { require.NoError(t, client.Close()) }()
	_, err = client.Get(t.Context(), "key")
	require.NoError(t, err)
	require.Equal(t, int64(1), answers.Load())

	changes := client.Watch(t.Context(), "key")
	until(t, "the watch is created", func() bool { return answers.Load() >= 2 })
	_, err = client.Put(t.Context(), "key", "value")
	require.NoError(t, err)
	<-changes
	until(t, "the change is observed", func() bool { return answers.Load() >= 4 })
	require.Zero(t, failures.Load())

	s.kill()
	seen := answers.Load()
	until(t, "the failure is observed", func() bool { return failures.Load() > 0 })
	require.Equal(t, seen, answers.Load())
}
