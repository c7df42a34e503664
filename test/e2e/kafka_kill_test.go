package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"docstore/internal/crashtest"
	"docstore/internal/testseed"
)

// TestUpdaterOfKafkaKilled kills the updater with SIGKILL while it follows a topic, to which
// messages are written and whose partitions get new leaders. The queue has each message once, in
// the order of its partition; with shards, in the order of its id.
func TestUpdaterOfKafkaKilled(t *testing.T) {
	t.Parallel()
	const partitions = 3
	t.Run("shards=1", func(t *testing.T) {
		want, got := killUpdaterOfKafka(t, partitions, func(id int) int { return id % partitions })
		require.Equal(t, want, got)
	})
	t.Run("shards=4", func(t *testing.T) {
		want, got := killUpdaterOfKafka(t, partitions, func(id int) int { return id }, "--shards", "4")
		require.Equal(t, want, got)
	})
}

// killUpdaterOfKafka returns the messages of the topic and those of the queue by groups of ids,
// in their order.
func killUpdaterOfKafka(t *testing.T, partitions int, group func(id int) int, flags ...string) (want, got map[int][]string) {
	t.Helper()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(2), kfake.SeedTopics(int32(partitions), "jobs"))
	require.NoError(t, err)
	defer cluster.Close()
	producer, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	require.NoError(t, err)
	defer producer.Close()

	random, tally := testseed.Rand(t), crashtest.NewTally(t, "kills")
	want = map[int][]string{}
	number := 0
	produce := func(n int) {
		var messages []*kgo.Record
		for range n {
			number++
			id := random.IntN(1000)
			m := &kgo.Record{Topic: "jobs", Partition: int32(id % partitions), Key: fmt.Append(nil, id)}
			line := fmt.Sprintf(`{"id":"%d","_delete":true}`, id)
			if random.IntN(5) > 0 {
				line = fmt.Sprintf(`{"id":"%d","n":%d}`, id, number)
				m.Value = []byte(line)
			}
			want[group(id)] = append(want[group(id)], line)
			messages = append(messages, m)
		}
		require.NoError(t, producer.ProduceSync(context.Background(), messages...).FirstErr())
	}
	queue := filepath.Join(t.TempDir(), "queue")
	args := []string{
		"append", "--queue", queue, "--segment-size", "64KiB", "--flush-interval", "5ms",
		"--from", "kafka://" + strings.Join(cluster.ListenAddrs(), ",") + "/jobs",
	}
	args = append(args, flags...)
	for range crashtest.Share(10, 200) {
		updater := start(t, nil, "docstore-updater", append(slices.Clip(args), "--follow")...)
		for until := time.Now().Add(time.Duration(random.IntN(250)) * time.Millisecond); time.Now().Before(until); {
			produce(1 + random.IntN(200))
			if random.IntN(20) == 0 {
				cluster.ShufflePartitionLeaders()
			}
		}
		updater.Kill()
		tally.Case()
	}
	produce(100)
	start(t, nil, "docstore-updater", args...).WaitExit(t)

	got = map[int][]string{}
	for _, line := range dump(t, queue) {
		var entry struct {
			ID int `json:",string"`
		}
		require.NoError(t, json.Unmarshal(line, &entry))
		got[group(entry.ID)] = append(got[group(entry.ID)], strings.TrimSuffix(string(line), "\n"))
	}
	return want, got
}
