package nats

import (
	"fmt"
	"strings"
	"time"

	"docstore/ingest"
	"docstore/ingest/envelope"
)

// batch is a series of messages.
type batch struct {
	batch    ingest.Batch
	at       position // of the stream
	messages []place  // of the records
}

// place is what a cursor has of a message.
type place struct {
	sequence uint64
	content  content
}

// batches makes batches of messages. A message is one record.
func (s *Source) batches(messages []message) {
	var b *batch
	bytes := 0
	for _, m := range messages {
		if b == nil || bytes >= batchBytes {
			b = &batch{at: s.at}
			b.batch.Ends, b.batch.Oldest = !s.config.Follow, time.Unix(0, m.content.time)
			b.batch.AppendCursor, b.batch.Included, b.batch.Place = b.appendCursor, b.included, b.place
			s.ready = append(s.ready, &b.batch)
			bytes = 0
		}
		b.batch.Records = s.decode(b.batch.Records, m)
		b.batch.Bytes += int64(len(m.Data()))
		b.messages = append(b.messages, place{m.sequence, m.content})
		bytes += len(m.Data())
	}
	last := messages[len(messages)-1]
	s.at.last, s.at.content = last.sequence, last.content
}

// decode appends the record of a message.
func (s *Source) decode(dst []ingest.Record, m message) []ingest.Record {
	value := m.Data()
	if value == nil {
		value = []byte{}
	}
	var id []byte
	switch {
	case s.config.ID == IDOfSubject:
		id = []byte(wildcardPart(s.pattern, m.Subject()))
	case s.config.ID != IDOfDocument:
		name := strings.TrimPrefix(s.config.ID, IDOfHeader)
		if id = []byte(m.Headers().Get(name)); len(id) == 0 {
			return append(dst, envelope.Invalid(value, fmt.Errorf("the message has no header %s, which is the id", name)))
		}
	}
	if isDelete(m.Headers()) {
		value = nil
	}
	return s.config.Decoder.Append(dst, id, value)
}

func (b *batch) appendCursor(dst []byte, i int) []byte {
	at := b.at
	at.last, at.content = b.messages[i].sequence, b.messages[i].content
	return at.append(dst)
}

func (b *batch) included(p ingest.Position, i int) bool {
	return p.(*position).last >= b.messages[i].sequence
}

func (b *batch) place(i int) string {
	return fmt.Sprintf("stream %s, message %d", b.at.stream, b.messages[i].sequence)
}
