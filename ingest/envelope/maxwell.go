package envelope

import (
	"errors"
	"fmt"
	"strings"

	"docstore/ingest"
)

// keyPrefix precedes the names of the columns in the key of a Maxwell event.
const keyPrefix = "pk."

func (d *Decoder) appendMaxwell(dst []ingest.Record, key, value []byte) ([]ingest.Record, error) {
	keyFields, table, err := d.maxwellKey(key)
	if err != nil || table != d.Table {
		return dst, err
	}
	id := func([]byte) ([]byte, error) { return idOf(keyFields) }
	if value == nil {
		return appendDelete(dst, key, id)
	}
	event, err := d.parseObject("value", value)
	if err != nil {
		return dst, err
	}
	kind, err := textOf("type", event["type"])
	if err != nil {
		return dst, fmt.Errorf("not an event of Maxwell: %w", err)
	}
	switch kind {
	case "delete":
		return appendDelete(dst, key, id)
	case "insert", "update", "bootstrap-insert":
	case "bootstrap-start", "bootstrap-complete":
		return dst, nil
	default:
		if strings.HasPrefix(kind, "table-") || strings.HasPrefix(kind, "database-") {
			return dst, nil // of the schema
		}
		return dst, fmt.Errorf("unknown type %q of Maxwell", kind)
	}
	newID, err := idOf(keyFields)
	if err != nil {
		return dst, err
	}
	if kind == "update" {
		if dst, err = appendOldKey(dst, keyFields, newID, event["old"]); err != nil {
			return dst, err
		}
	}
	return appendRow(dst, newID, "data", event["data"])
}

// appendOldKey appends the delete of the old id if an update has changed the key of the row.
// old has the previous values of the changed columns.
func appendOldKey(dst []ingest.Record, key []field, newID, old []byte) ([]ingest.Record, error) {
	if !isObject(old) {
		return dst, nil
	}
	changed, previous := fieldsOf(old), make([]field, len(key))
	for i, column := range key {
		previous[i] = column
		if value, ok := find(changed, column.name); ok {
			previous[i].value = value
		}
	}
	oldID, err := idOf(previous)
	if err != nil || string(oldID) == string(newID) {
		return dst, err
	}
	return append(dst, ingest.Record{ID: oldID, Delete: true}), nil
}

// maxwellKey returns the key columns and the table of the key of an event.
func (d *Decoder) maxwellKey(key []byte) (columns []field, table string, err error) {
	value, err := d.parse("key", key)
	if err != nil {
		return nil, "", err
	}
	if !isObject(value) {
		return nil, "", errors.New("the key is not an object; set kafka_key_format=hash in Maxwell")
	}
	var names [2]string // of database and table
	for _, f := range fieldsOf(value) {
		switch {
		case f.name == "database":
			names[0], err = textOf(f.name, f.value)
		case f.name == "table":
			names[1], err = textOf(f.name, f.value)
		case strings.HasPrefix(f.name, keyPrefix):
			columns = append(columns, field{name: f.name[len(keyPrefix):], value: f.value})
		}
		if err != nil {
			return nil, "", fmt.Errorf("not a key of Maxwell: %w", err)
		}
	}
	return columns, names[0] + "." + names[1], nil
}
