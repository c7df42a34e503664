package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"docstore/ingest"
)

// lookup is a record that needs its row from the table, because an update did not send an
// unchanged TOASTed value.
type lookup struct {
	record int // in waiting
	key    [][]byte
}

// addLookup adds a record whose document comes from a lookup of the new row's key.
func (c *changes) addLookup(at place) {
	record := c.format.remove(&c.room, c.newRow)
	l := lookup{record: len(c.waiting.records)}
	for _, i := range c.format.keys {
		l.key = append(l.key, slices.Clone(c.newRow[i]))
	}
	c.lookups = append(c.lookups, l)
	c.add(ingest.Record{ID: record.ID, Problem: record.Problem}, at)
}

// resolve completes the records that need lookups. It reads the rows as they are now: later
// changes follow. A row that is not there any more was deleted, or has another key, by a later
// change, so its record is dropped.
func (c *changes) resolve(ctx context.Context) error {
	if len(c.lookups) == 0 {
		return nil
	}
	found, err := c.lookUp(ctx)
	if err != nil {
		return err
	}
	dropped := make(map[int]bool)
	for _, l := range c.lookups {
		r := &c.waiting.records[l.record]
		if r.Problem != nil {
			continue // the key itself is invalid
		}
		row, exists := found[string(r.ID)]
		if !exists {
			dropped[l.record] = true
			continue
		}
		*r = row
		c.waiting.bytes += len(row.Document)
	}
	c.lookups = c.lookups[:0]
	kept := 0
	for i := range c.waiting.records {
		if !dropped[i] {
			c.waiting.records[kept], c.waiting.places[kept] = c.waiting.records[i], c.waiting.places[i]
			kept++
		}
	}
	c.waiting.records, c.waiting.places = c.waiting.records[:kept], c.waiting.places[:kept]
	return nil
}

// undefinedColumn is the SQLSTATE of a statement with a column that does not exist.
const undefinedColumn = "42703"

// lookUp reads the rows of the lookups.
func (c *changes) lookUp(ctx context.Context) (map[string]ingest.Record, error) {
	s := c.session
	s.catalog.Lock()
	defer s.catalog.Unlock()
	found, err := c.selectRows(ctx)
	var ofServer *pgconn.PgError
	if errors.As(err, &ofServer) && ofServer.Code == undefinedColumn {
		// A column was dropped or renamed after the table was described.
		if err := s.table.readColumns(ctx, s.catalog.conn); err != nil {
			return nil, err
		}
		found, err = c.selectRows(ctx)
	}
	return found, err
}

// selectRows reads the rows of the lookups by a single statement.
func (c *changes) selectRows(ctx context.Context) (map[string]ingest.Record, error) {
	t, conn := c.session.table, c.session.catalog.conn
	keys := t.keys
	var columns, casts, arrays []string
	parameters := make([][]byte, len(keys))
	for i, sqlType := range t.keyTypes() {
		columns = append(columns, "t."+quote(keys[i]))
		casts = append(casts, fmt.Sprintf("u.k%d::%s", i, sqlType))
		arrays = append(arrays, fmt.Sprintf("$%d::text[]", i+1))
		parameters[i] = textArray(c.lookups, i)
	}
	names := make([]string, len(keys))
	for i := range keys {
		names[i] = fmt.Sprintf("k%d", i)
	}
	sql := fmt.Sprintf("SELECT %s FROM %s AS t WHERE (%s) IN (SELECT %s FROM unnest(%s) AS u(%s))", t.columnList("t."), t.from(c.source.opener.table),
		strings.Join(columns, ", "), strings.Join(casts, ", "), strings.Join(arrays, ", "), strings.Join(names, ", "))
	rows := conn.ExecParams(ctx, sql, parameters, nil, nil, nil)
	found := make(map[string]ingest.Record)
	result := rows.Read()
	if result.Err != nil {
		return nil, result.Err
	}
	if len(result.Rows) == 0 {
		return found, nil // and result has no descriptions
	}
	fields, oids := make([]string, len(result.FieldDescriptions)), make([]uint32, len(result.FieldDescriptions))
	for i, field := range result.FieldDescriptions {
		fields[i], oids[i] = field.Name, field.DataTypeOID
	}
	types, err := describeTypes(ctx, conn, oids)
	if err != nil {
		return nil, err
	}
	f, err := newFormat(fields, types, keys)
	if err != nil {
		return nil, err
	}
	for _, values := range result.Rows {
		r := f.put(&c.room, values)
		found[string(r.ID)] = r
	}
	return found, nil
}

// textArray returns part i of the keys of lookups in the text form of an array.
func textArray(lookups []lookup, i int) []byte {
	array := []byte{'{'}
	for n, l := range lookups {
		if n > 0 {
			array = append(array, ',')
		}
		if l.key[i] == nil {
			array = append(array, "NULL"...)
			continue
		}
		array = append(array, '"')
		for _, c := range l.key[i] {
			if c == '"' || c == '\\' {
				array = append(array, '\\')
			}
			array = append(array, c)
		}
		array = append(array, '"')
	}
	return append(array, '}')
}
