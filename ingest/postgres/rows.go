package postgres

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"docstore/ingest/postgres/pgjson"
)

// readRows reads the rows behind the position, in the order of the key.
func (s *Source) readRows(ctx context.Context, session *session) error {
	if session.table != nil {
		defer s.watchRows(ctx, session)()
	}
	last, err := parseKey(s.at.key)
	if err != nil {
		return err
	}
	keys := s.opener.options.Key
	if session.table != nil {
		keys = session.table.keys
	}
	if len(last) > 0 && len(last) != len(keys) {
		return errForeignCursor
	}
	conn := session.rows
	rows := conn.ExecParams(ctx, s.rowsQuery(session.table, keys, len(last) > 0), last, nil, nil, nil)
	err = s.sendRows(ctx, session, rows, keys)
	if _, closeErr := rows.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return err
	}
	session.rows = nil
	closing, cancel := context.WithTimeout(ctx, closeTimeout)
	defer cancel()
	_ = conn.Close(closing) // it has only read
	return nil
}

// rowsQuery returns the statement that reads the rows of a table, or of the query if that is
// nil, behind a key if one is given.
func (s *Source) rowsQuery(t *table, keys []string, behind bool) string {
	columns, from := "*", "("+s.opener.options.Query+"\n) AS query"
	if t != nil {
		columns, from = t.columnList(""), t.from(s.opener.table)
	}
	quoted, parameters := make([]string, len(keys)), make([]string, len(keys))
	for i, key := range keys {
		quoted[i], parameters[i] = quote(key), fmt.Sprintf("$%d", i+1)
		if t != nil {
			parameters[i] += "::" + t.keyTypes()[i]
		}
	}
	order := strings.Join(quoted, ", ")
	where := ""
	if behind {
		where = fmt.Sprintf(" WHERE (%s) > (%s)", order, strings.Join(parameters, ", "))
	}
	return fmt.Sprintf("SELECT %s FROM %s%s ORDER BY %s", columns, from, where, order)
}

// sendRows sends the rows of a result.
func (s *Source) sendRows(ctx context.Context, session *session, rows *pgconn.ResultReader, keys []string) error {
	var (
		f    *format
		room room
		b    batch
		key  = s.at.key
		n    = s.at.index
	)
	for rows.NextRow() {
		if f == nil {
			var err error
			if f, err = session.resultFormat(ctx, rows.FieldDescriptions(), keys); err != nil {
				return err
			}
		}
		values := rows.Values()
		n++
		if k := f.key(&room, values); k != nil {
			key = k
		}
		b.add(f.put(&room, values), place{phase: s.at.phase, lsn: s.at.lsn, index: n, key: key, anchor: s.at.anchor})
		if len(b.records) >= batchRecords || b.bytes >= batchBytes || session.rows.Frontend().ReadBufferLen() == 0 {
			if err := s.send(ctx, &b); err != nil {
				return err
			}
		}
	}
	return s.send(ctx, &b)
}

// resultFormat returns the format of the rows of a result.
func (s *session) resultFormat(ctx context.Context, fields []pgconn.FieldDescription, keys []string) (*format, error) {
	names, oids := make([]string, len(fields)), make([]uint32, len(fields))
	for i, field := range fields {
		names[i], oids[i] = field.Name, field.DataTypeOID
	}
	types, err := s.types(ctx, oids)
	if err != nil {
		return nil, err
	}
	return newFormat(names, types, keys)
}

// types returns the types with the given OIDs.
func (s *session) types(ctx context.Context, oids []uint32) ([]*pgjson.Type, error) {
	s.catalog.Lock()
	defer s.catalog.Unlock()
	return describeTypes(ctx, s.catalog.conn, oids)
}
