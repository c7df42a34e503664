package envelope

import (
	"encoding/json"
	"errors"
	"fmt"

	"docstore/ingest"
	"docstore/queue"
)

// Format is the format of the messages of a stream.
type Format string

// The formats.
const (
	JSON     Format = "json"
	Raw      Format = "raw"
	Debezium Format = "debezium"
	Maxwell  Format = "maxwell"
)

// Formats are the names of all formats, for messages.
const Formats = "json, raw, debezium or maxwell"

// Decoder decodes messages. It may be used concurrently.
type Decoder struct {
	Format Format
	// IDInDocument leaves the id of a JSON document empty: it is a field of the document,
	// and the key of the message is ignored.
	IDInDocument bool
	// Table is the table of Maxwell events, DATABASE.TABLE. Events of other tables are
	// skipped, because their keys may be equal.
	Table string
	// Valid reports whether a text is valid JSON. The default is json.Valid.
	Valid func(text []byte) bool
}

// Check reports options that contradict each other.
func (d *Decoder) Check() error {
	switch d.Format {
	case JSON, Raw, Debezium, Maxwell:
	default:
		return fmt.Errorf("unknown format %q, want %s", d.Format, Formats)
	}
	switch {
	case d.IDInDocument && d.Format != JSON:
		return fmt.Errorf("the id of format %s is the key of the message; it cannot be read from the document", d.Format)
	case d.Format == Maxwell && d.Table == "":
		return errors.New("format maxwell needs a table, DATABASE.TABLE, because a topic may have events of several")
	case d.Format != Maxwell && d.Table != "":
		return fmt.Errorf("format %s has no table; a table selects events of format maxwell", d.Format)
	}
	return nil
}

// Append appends the records of a message to dst: one, none if the message concerns no
// document, or a delete followed by a document. A nil key or value is null. The records
// refer to the bytes of the message.
func (d *Decoder) Append(dst []ingest.Record, key, value []byte) []ingest.Record {
	before := len(dst)
	var err error
	switch d.Format {
	case Debezium:
		dst, err = d.appendDebezium(dst, key, value)
	case Maxwell:
		dst, err = d.appendMaxwell(dst, key, value)
	default:
		dst, err = d.appendPlain(dst, key, value)
	}
	if err != nil {
		return append(dst[:before], Invalid(value, err))
	}
	for i := before; i < len(dst); i++ {
		if err := checkLimits(&dst[i]); err != nil {
			return append(dst[:before], Invalid(value, err))
		}
	}
	return dst
}

// Invalid returns the record of a message that is invalid.
func Invalid(value []byte, problem error) ingest.Record {
	return ingest.Record{Document: value, Problem: problem}
}

var errNoKey = errors.New("the message has no key, which is the id")

func (d *Decoder) appendPlain(dst []ingest.Record, key, value []byte) ([]ingest.Record, error) {
	switch {
	case value == nil && d.IDInDocument:
		return dst, errors.New("a null value has no document with an id; omit id=document if the key is the id")
	case d.IDInDocument:
		return append(dst, ingest.Record{Document: value}), nil // the reader of the id validates it
	case len(key) == 0:
		return dst, errNoKey
	case value == nil:
		return append(dst, ingest.Record{ID: key, Delete: true}), nil
	case d.Format == JSON && !d.valid(value):
		return dst, notJSON("value", value)
	}
	return append(dst, ingest.Record{ID: key, Document: value}), nil
}

func (d *Decoder) valid(text []byte) bool {
	if d.Valid != nil {
		return d.Valid(text)
	}
	return json.Valid(text)
}

// checkLimits checks the limits of the queue. An empty id is in the document.
func checkLimits(r *ingest.Record) error {
	switch {
	case len(r.ID) > queue.MaxIDBytes:
		return fmt.Errorf("the id has %d bytes, and at most %d are allowed", len(r.ID), queue.MaxIDBytes)
	case len(r.Document) > queue.MaxDocumentBytes:
		return fmt.Errorf("the document has %d bytes, and at most %d are allowed", len(r.Document), queue.MaxDocumentBytes)
	}
	return nil
}

// notJSON explains why text is not JSON. part is the part of the message.
func notJSON(part string, text []byte) error {
	// The header of Confluent's serializers: a zero byte and the id of a schema.
	if len(text) > 5 && text[0] == 0 {
		return fmt.Errorf("the %s is not JSON: it begins with a zero byte, as Avro and Protobuf of a schema registry do; "+
			"produce JSON, or convert the topic", part)
	}
	var ignored json.RawMessage
	err := json.Unmarshal(text, &ignored)
	if err == nil {
		err = errors.New("syntax error")
	}
	return fmt.Errorf("the %s is not JSON: %w", part, err)
}
