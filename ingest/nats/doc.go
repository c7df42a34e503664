// Package nats reads documents from a stream of NATS JetStream.
//
//	opener, err := nats.NewOpener(nats.Config{
//		Servers: []string{"nats1:4222"}, Stream: "JOBS", Subject: "jobs.*", ID: nats.IDOfSubject,
//		Decoder: envelope.Decoder{Format: envelope.JSON},
//	})
//	src, err := opener.Open(ctx, cursor)
//
// The id of a document is the part of the subject that the wildcards of Config.Subject match,
// a header, or a field of the document. A message whose header KV-Operation is DEL or PURGE, or
// that has a header Nats-Marker-Reason, deletes the id, so a key-value bucket NAME is the stream
// KV_NAME with the subject $KV.NAME.>.
//
// An ordered consumer reads the stream. It needs no acknowledgment, so the stream must keep its
// messages by limits; a work queue or interest stream can be the source of such a stream.
//
// # Cursor
//
//	4   "DSNA"
//	u8  version, 1
//	i64 creation time of the stream, nanoseconds since 1970, little-endian
//	u64 sequence of the message
//	i64 time at which it was stored, nanoseconds since 1970; 0: unknown
//	u32 CRC-32C of its subject and data
//	... name of the stream, to the end
//
// Version 0 lacks time and checksum. It is read, and the message is not compared.
//
// # Nothing is left out
//
// Sequences have legal gaps: messages of other subjects, and messages deleted individually or
// replaced by a later one of the subject. Reading stops with an error if the stream was deleted
// or created again, was restored from an older copy that lacks messages before the cursor, also if
// it has as many others now, or has discarded the messages that follow the cursor.
// An exception is a stream whose only limit is the number of messages of a subject, if the
// subject is the id: the discarded messages were replaced.
//
// The stream does not know which subjects the discarded messages had. If a source reads some
// subjects of a stream, and opens it when all messages since the last one of these subjects
// were discarded, it stops although nothing may be missing.
//
// Messages that a limit of age removes leave their documents: only messages delete. In a bucket the
// key would be gone, so a bucket whose keys expire without a marker is refused.
//
// # Memory
//
// At most FetchBytes, or twice the largest message that the server allows, are requested ahead,
// and one batch of PollBytes is decoded.
package nats
