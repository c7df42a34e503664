package main

import (
	"context"
	"encoding/json"
	"errors"
	"strings"

	"docstore/queue"
)

// idFieldSample is how many documents dump looks at to find the field of their ids.
const idFieldSample = 100

// errSampled ends a scan behind the sample.
var errSampled = errors.New("sampled")

// findIDField takes another field for the id's if the first documents all have their id in
// it and in no other field, "id" included. Queues do not say which field append read.
func (d *dumper) findIDField(ctx context.Context) error {
	var candidates map[string]bool // nil before the first document
	documents := 0
	err := d.reader.Scan(ctx, queue.Position{}, func(e queue.Entry) (err error) {
		if e.Deleted {
			return nil
		}
		if d.document, err = d.reader.DocumentFor(d.document[:0], e.ID, e.Address); err != nil {
			return nil //nolint:nilerr // the dump reports it
		}
		holders := fieldsWith(string(e.ID), d.document)
		if candidates == nil {
			candidates = holders
		}
		for name := range candidates {
			if !holders[name] {
				delete(candidates, name)
			}
		}
		if documents++; documents == idFieldSample || len(candidates) == 0 {
			return errSampled
		}
		return nil
	})
	if err != nil && !errors.Is(err, errSampled) {
		return err
	}
	if len(candidates) != 1 {
		return nil
	}
	for name := range candidates {
		if name != d.idField {
			d.idField = name
			d.env.Log.Info("the documents' ids are in another field: give append the same --id-field", "id_field", name)
		}
	}
	return nil
}

// fieldsWith returns the top-level fields of a document whose value is an id, but for
// control fields.
func fieldsWith(id string, document []byte) map[string]bool {
	var fields map[string]json.RawMessage
	found := map[string]bool{}
	if json.Unmarshal(document, &fields) != nil {
		return found
	}
	for name, value := range fields {
		var text string
		if json.Unmarshal(value, &text) != nil {
			text = string(value) // an integer
		}
		if text == id && !strings.HasPrefix(name, "_") {
			found[name] = true
		}
	}
	return found
}
