// Package kafka reads documents from a topic of Kafka.
//
//	opener, err := kafka.NewOpener(kafka.Config{
//		Brokers: []string{"kafka1:9092"}, Topic: "jobs", Follow: true,
//		Decoder: envelope.Decoder{Format: envelope.JSON},
//	})
//	src, err := opener.Open(ctx, cursor)
//
// The partitions are assigned by the caller, not by a consumer group, so no other consumer
// and no rebalance changes which messages are read. Messages of aborted transactions are not
// read, and those of open transactions wait for the end of the transaction.
//
// # Cursor
//
// A cursor has the next offset of each partition and the leader epoch of the message before
// it, and identifies the cluster and the topic:
//
//	4   "DSKA"
//	u8  version, 1
//	16  topic id, 0 if the broker has none
//	u8  length of the id of the cluster, then the id
//	u8  length of the name of the topic, then the name
//	... varints: partitions of the topic, entries; then for each entry, by partition:
//	    partition minus the previous one minus 1, next offset, leader epoch plus 1;
//	    u16 checksum of the message before the offset, 0: unknown
//
// Version 0 has no checksums. It is read, and the messages are not compared.
//
// A message that gives two records, see package envelope, is read again after a crash between
// them. The first is a delete, so applying it twice changes nothing.
//
// A position is a vector, so the cursors of the shards of a collection may each be ahead in
// another partition, and partitions are read again in another order (source.Interleaved).
//
// # Nothing is left out
//
// Offsets of a partition have legal gaps: markers of transactions, aborted messages, and
// messages removed by compaction. Reading stops with an error where messages were lost:
//
//   - The broker has deleted messages that were not read yet, by retention or a request.
//   - The log is shorter than the part read, or differs from it, because a replica without
//     all messages became leader. Leader epochs show this (KIP-320).
//   - The brokers were restored from an older copy, which was written past the cursor. Leader epochs
//     need not show that; the checksum of the message before the cursor does, when a later message
//     is read. It cannot if that message was deleted or compacted away.
//   - The topic was deleted, or deleted and created again, or the cluster is another one.
//     Without topic ids, before Kafka 2.8, only the offsets and leader epochs can show this.
//
// A partition that was added to the topic is read from its first message. Reading continues
// after elections, restarts of brokers and lost connections.
//
// # Memory
//
// At most two fetches of each broker are in memory. One fetch of all brokers has FetchBytes
// compressed, or more if the first batch of messages of a broker is larger. A batch of messages
// has at most MaxBatchBytes before and after decompression.
package kafka
