package envelope

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"

	"docstore/ingest"
)

// unavailable is Debezium's placeholder for a column that the database did not log, because
// it is stored out of line and did not change.
const unavailable = "__debezium_unavailable_value"

// unavailableForms are the forms of the placeholder besides arrays of integers. The type of the
// column decides.
var unavailableForms = [][]byte{
	[]byte(unavailable), // text, and texts in arrays, JSON and hstore
	[]byte(`"` + base64.RawStdEncoding.EncodeToString([]byte(unavailable))), // bytea, without padding
	[]byte(`"` + hex.EncodeToString([]byte(unavailable))),                   // bytea with binary.handling.mode=hex
	[]byte(`"b68a35a7-17ad-35b3-af2a-ae46edb4545a"`),                        // uuid[]: UUID.nameUUIDFromBytes of Java
}

// isUnavailable reports whether a row has the placeholder.
func isUnavailable(row []byte) bool {
	for _, form := range unavailableForms {
		if bytes.Contains(row, form) {
			return true
		}
	}
	for rest := row; ; {
		var found bool
		if _, rest, found = bytes.Cut(rest, []byte{'['}); !found {
			return false
		}
		if isUnavailableArray(rest) {
			return true
		}
	}
}

// isUnavailableArray reports whether an array, whose text follows its bracket, has the bytes of
// the placeholder: the form of arrays of integers, and of bytea as numbers.
func isUnavailableArray(text []byte) bool {
	var digits [3]byte
	for i := range len(unavailable) {
		if i > 0 && !bytes.HasPrefix(text, []byte{','}) {
			return false
		}
		text = bytes.TrimLeft(text[min(i, 1):], blanks)
		var found bool
		if text, found = bytes.CutPrefix(text, strconv.AppendUint(digits[:0], uint64(unavailable[i]), 10)); !found {
			return false
		}
		text = bytes.TrimLeft(text, blanks)
	}
	return bytes.HasPrefix(text, []byte{']'})
}

var errTruncated = errors.New("the table was truncated, which cannot be applied document by document; append the deletes, then skip this event")

func (d *Decoder) appendDebezium(dst []ingest.Record, key, value []byte) ([]ingest.Record, error) {
	if value == nil {
		return appendDelete(dst, key, d.debeziumID)
	}
	event, err := d.parseObject("value", value)
	if err != nil {
		return dst, err
	}
	if payload, ok := event["payload"]; ok && event["op"] == nil {
		if isNull(payload) {
			return appendDelete(dst, key, d.debeziumID)
		}
		if event, err = objectOf("payload", payload); err != nil {
			return dst, err
		}
	}
	operation, err := textOf("op", event["op"])
	if err != nil {
		return dst, fmt.Errorf("not an event of Debezium: %w; rows without an envelope have format=json", err)
	}
	switch operation {
	case "c", "r", "u":
		id, err := d.debeziumID(key)
		if err != nil {
			return dst, err
		}
		return appendRow(dst, id, "after", event["after"])
	case "d":
		return appendDelete(dst, key, d.debeziumID)
	case "t":
		return dst, errTruncated
	case "m": // a message of the database, which is no row
		return dst, nil
	}
	return dst, fmt.Errorf("unknown operation %q of Debezium", operation)
}

// debeziumID returns the id of a key: an object of the key columns or a single value, with or
// without a schema.
func (d *Decoder) debeziumID(key []byte) ([]byte, error) {
	value, err := d.parse("key", key)
	if err != nil {
		return nil, err
	}
	if isObject(value) {
		columns := fieldsOf(value)
		_, schema := find(columns, "schema")
		payload, ok := find(columns, "payload")
		if !ok || !schema || len(columns) != 2 {
			return idOf(columns)
		}
		if isObject(payload) {
			return idOf(fieldsOf(payload))
		}
		value = payload
	}
	return idOf([]field{{name: "key", value: value}})
}

// appendDelete appends the delete of the id of a key.
func appendDelete(dst []ingest.Record, key []byte, idOf func(key []byte) ([]byte, error)) ([]ingest.Record, error) {
	id, err := idOf(key)
	if err != nil {
		return dst, err
	}
	return append(dst, ingest.Record{ID: id, Delete: true}), nil
}

// appendRow appends the document of a row.
func appendRow(dst []ingest.Record, id []byte, name string, row []byte) ([]ingest.Record, error) {
	if !isObject(row) {
		return dst, fmt.Errorf("the field %q has no row", name)
	}
	if isUnavailable(row) {
		return dst, fmt.Errorf("the event lacks a column that did not change (%s); set REPLICA IDENTITY FULL for the table", unavailable)
	}
	return append(dst, ingest.Record{ID: id, Document: row}), nil
}
