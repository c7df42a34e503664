package main

import (
	"context"

	"docstore/cmd/internal/cli"
	"docstore/ingest"
	"docstore/ingest/kafka"
	"docstore/ingest/records"
)

const kafkaForm = "kafka://HOST:PORT[,...]/TOPIC"

const kafkaHelp = `kafka:// reads a topic: the key of a message is the id, and a null value
deletes it. Messages of aborted transactions are not read. Append stops if
messages were deleted or lost before it read them, or the topic was created
again. Options of the URL, such as kafka://db:9092/jobs?tls=true&partitions=0-7:

  format=json           values are documents (default); or raw, debezium, maxwell
  id=document           the id is a field of the document, see --id-field
  table=DATABASE.TABLE  the table of maxwell events
  partitions=0-7,9      default all
  sasl=MECHANISM        plain, scram-sha-256 or scram-sha-512
  user, password-file   for sasl
  tls=true, ca=FILE, cert=FILE, key=FILE`

// openKafkaURL opens a topic of Kafka.
func openKafkaURL(_ context.Context, text string, o *fromOptions) (ingest.Opener, error) {
	u, err := parseStreamURL(text, kafkaForm, "format", "id", "table", "partitions", "sasl")
	if err != nil {
		return nil, err
	}
	config := kafka.Config{Brokers: u.hosts, Topic: u.path, Follow: o.flags.follow, Mechanism: u.options["sasl"], User: u.options["user"]}
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
		return nil, cli.Usagef("--from %s: id=%s: want key or document", text, id)
	}
	if partitions := u.options["partitions"]; partitions != "" {
		if config.Partitions, err = parseRanges(partitions, kafka.PartitionLimit); err != nil {
			return nil, cli.Usagef("--from %s: partitions=%w", text, err)
		}
	}
	if config.Password, err = u.password(); err != nil {
		return nil, err
	}
	if config.TLS, err = u.tls(o.log); err != nil {
		return nil, err
	}
	opener, err := kafka.NewOpener(config)
	if err != nil {
		return nil, cli.Usagef("--from %s: %w", text, err)
	}
	return opener, nil
}
