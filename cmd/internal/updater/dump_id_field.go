package updater

import (
	"context"
	"encoding/json"
	"errors"
	"strings"

	"docstore/internal/canary"
	"docstore/queue"
)

// idFieldSample is the number of documents that dump examines to find the id field.
const idFieldSample = 100

// errSampled ends the scan after the sample.
var errSampled = errors.New("sampled")

// findIDField uses another id field if the first documents all have their id in exactly
// that field, and not in "id". Queues do not record the field that append used.
func (d *dumper) findIDField(ctx context.Context) error {
	var candidates map[string]bool // nil before the first document
	documents := 0
	err := d.reader.Scan(ctx, queue.Position{}, func(e queue.Entry) (err error) {
		if e.Deleted || canary.Is(e.ID) {
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
	d.sampled = documents > 0
	if len(candidates) != 1 {
		return nil
	}
	for name := range candidates {
		if name != d.idField {
			d.idField = name
			d.env.Log.Info("the ids of the documents are in another field; use the same --id-field for append", "id_field", name)
		}
	}
	return nil
}

// fieldsWith returns the top-level fields of a document whose value is the id, except
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
