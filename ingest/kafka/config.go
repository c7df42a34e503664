package kafka

import (
	"crypto/tls"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"docstore/ingest/envelope"
)

// Limits.
const (
	// MaxPartitions is the maximum number of partitions of a cursor.
	MaxPartitions = 240
	// PartitionLimit is above the number of each partition.
	PartitionLimit = 1 << 14
	// FetchBytes is the total size of one fetch of each broker, compressed.
	FetchBytes = 32 << 20
	// MaxBatchBytes is the maximum size of a batch of messages, as a producer has written it,
	// before and after decompression.
	MaxBatchBytes = 64 << 20

	maxTopicBytes      = 249     // the limit of Kafka
	maxClusterBytes    = 40      // a longer id is cut
	minFetchBytes      = 1 << 20 // of one broker
	fetchPartition     = 1 << 20 // bytes of one partition in a fetch
	batchBytes         = 256 << 10
	maxIdleBatches     = 8
	maxIdleRecords     = 16 << 10 // a larger batch is not reused
	fetchWait          = 500 * time.Millisecond
	openTimeout        = 30 * time.Second
	watchInterval      = 5 * time.Second
	retryInterval      = 250 * time.Millisecond
	metadataMaxAge     = time.Minute
	missingTopicChecks = 3
	openRetries        = 3 // of a request
)

// Names of the SASL mechanisms.
const (
	Plain       = "plain"
	ScramSHA256 = "scram-sha-256"
	ScramSHA512 = "scram-sha-512"
)

// Config is the configuration of a source.
type Config struct {
	Brokers []string // HOST:PORT of some brokers
	Topic   string
	// Partitions are the partitions to read, ascending. Nil reads all, also those added later.
	Partitions []int32
	Decoder    envelope.Decoder
	// Follow reads for ever. Without it the source ends behind the messages that were
	// committed when it was opened.
	Follow bool
	// TLS encrypts the connections; nil: plain text.
	TLS *tls.Config
	// Mechanism is the SASL mechanism; empty: none.
	Mechanism      string
	User, Password string
}

// check reports all faults.
func (c *Config) check() error {
	errs := []error{c.Decoder.Check()}
	if len(c.Brokers) == 0 || slices.Contains(c.Brokers, "") {
		errs = append(errs, errors.New("no broker given"))
	}
	if c.Topic == "" || len(c.Topic) > maxTopicBytes || strings.ContainsAny(c.Topic, "/,") {
		errs = append(errs, fmt.Errorf("invalid topic %q, want a name of 1 to %d bytes", c.Topic, maxTopicBytes))
	}
	if len(c.Partitions) > MaxPartitions {
		errs = append(errs, fmt.Errorf("%d partitions given, and at most %d are allowed", len(c.Partitions), MaxPartitions))
	}
	for i, p := range c.Partitions {
		if p < 0 || p >= PartitionLimit || i > 0 && p <= c.Partitions[i-1] {
			errs = append(errs, fmt.Errorf("invalid partitions %v, want different numbers below %d, ascending", c.Partitions, PartitionLimit))
			break
		}
	}
	if _, err := c.mechanism(); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func (c *Config) mechanism() (sasl.Mechanism, error) {
	if c.Mechanism != "" && (c.User == "" || c.Password == "") {
		return nil, fmt.Errorf("SASL mechanism %s needs a user and a password", c.Mechanism)
	}
	switch auth := (scram.Auth{User: c.User, Pass: c.Password}); c.Mechanism {
	case "":
		if c.User != "" || c.Password != "" {
			return nil, errors.New("a user or password is given without a SASL mechanism")
		}
		return nil, nil
	case Plain:
		return plain.Auth{User: c.User, Pass: c.Password}.AsMechanism(), nil
	case ScramSHA256:
		return auth.AsSha256Mechanism(), nil
	case ScramSHA512:
		return auth.AsSha512Mechanism(), nil
	}
	return nil, fmt.Errorf("unknown SASL mechanism %q, want %s, %s or %s", c.Mechanism, Plain, ScramSHA256, ScramSHA512)
}

// clientOptions returns the options of every client.
func (c *Config) clientOptions() []kgo.Opt {
	options := []kgo.Opt{
		kgo.SeedBrokers(c.Brokers...),
		kgo.ClientID("docstore"),
		kgo.DisableClientMetrics(),
		kgo.MetadataMaxAge(metadataMaxAge),
	}
	if c.TLS != nil {
		options = append(options, kgo.DialTLSConfig(c.TLS))
	}
	if mechanism, _ := c.mechanism(); mechanism != nil { // checked
		options = append(options, kgo.SASL(mechanism))
	}
	return options
}

// consumerOptions returns the options of the client that reads.
func (c *Config) consumerOptions(begin *start) []kgo.Opt {
	leaders, partitions := begin.topic.brokers(), begin.partitions
	fetch := max(FetchBytes/max(leaders, 1), minFetchBytes)
	offsets := make(map[int32]kgo.Offset, len(partitions))
	for _, p := range partitions {
		at, _ := begin.at.find(p)
		e := &begin.at.entries[at]
		offsets[p] = kgo.NewOffset().At(e.startOffset(begin.first[p])).WithEpoch(e.epoch)
	}
	return append(c.clientOptions(),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{c.Topic: offsets}),
		kgo.ConsumeResetOffset(kgo.NoResetOffset()), // an error instead of a gap
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.KeepControlRecords(), // they move the cursor
		kgo.FetchMaxBytes(int32(fetch)),
		kgo.FetchMaxPartitionBytes(fetchPartition),
		kgo.BrokerMaxReadBytes(int32(fetch+MaxBatchBytes)),
		kgo.MaxDecompressBatchBytes(MaxBatchBytes),
		kgo.MaxConcurrentFetches(max(leaders, 1)),
		kgo.FetchMaxWait(fetchWait),
	)
}
