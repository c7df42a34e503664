package sources

import (
	"context"

	"docstore/ingest"
	"docstore/ingest/kafka"
	"docstore/ingest/records"
)

const kafkaForm = "kafka://HOST:PORT[,...]/TOPIC"

// openKafkaURL opens a topic of Kafka.
func openKafkaURL(_ context.Context, text string, o *Options) (ingest.Opener, error) {
	u, err := o.parseStream(text, kafkaForm, "format", "id", "table", "partitions", "sasl")
	if err != nil {
		return nil, err
	}
	config := kafka.Config{Brokers: u.hosts, Topic: u.path, Follow: o.Follow, Mechanism: u.options["sasl"], User: u.options["user"]}
	config.Decoder.Table, config.Decoder.Valid = u.options["table"], records.Valid
	if config.Decoder.Format, err = u.format(o); err != nil {
		return nil, err
	}
	switch id := u.options["id"]; id {
	case "", "key":
		if err := o.refuseID("the id is the key of a message; write " + kafkaForm + "?id=document"); err != nil {
			return nil, err
		}
	case "document":
		config.Decoder.IDInDocument = true
	default:
		return nil, o.refuse(text, "id=%s: want key or document", id)
	}
	if partitions := u.options["partitions"]; partitions != "" {
		if config.Partitions, err = parseRanges(partitions, kafka.PartitionLimit); err != nil {
			return nil, o.refuse(text, "partitions=%w", err)
		}
	}
	if config.Password, err = u.password(); err != nil {
		return nil, err
	}
	if config.TLS, err = u.tls(o.Logger); err != nil {
		return nil, err
	}
	opener, err := kafka.NewOpener(config)
	if err != nil {
		return nil, o.refuse(text, "%w", err)
	}
	return opener, nil
}
