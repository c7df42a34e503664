package postgres

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"strconv"

	"github.com/jackc/pgx/v5/pgconn"
)

// The server sends the changes of rows of a partition, and none for other changes of the rows of a
// partitioned table: TRUNCATE of a partition, ATTACH of one with rows, DETACH. So a cursor has a
// fingerprint of the partitions, which is compared at Open and while the source is followed.
// Partitions that were made empty explain a difference.

// partition is a partition that has rows itself.
type partition struct {
	oid  uint32
	file uint32 // TRUNCATE gives it another, and so does VACUUM FULL, although it keeps the rows
	name string // as SQL
}

// fingerprint returns the sum of the hashes of partitions, so that one can be subtracted, and 1: without
// partitions it is not zero.
func fingerprint(partitions []partition) uint64 {
	sum := uint64(1)
	for i := range partitions {
		sum += partitions[i].hash()
	}
	return sum
}

func (p *partition) hash() uint64 {
	h := fnv.New64a()
	_, _ = h.Write(binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(nil, p.oid), p.file))
	return h.Sum64()
}

// lastAttached orders partitions.
const lastAttached = ` ORDER BY (SELECT min(age(i.xmin)) FROM pg_partition_ancestors(l.relid) a JOIN tree ON tree.relid = a.relid
	JOIN pg_inherits i ON i.inhrelid = a.relid WHERE a.relid <> $1::oid), l.relid::oid DESC`

// partitions returns the partitions of the table in an order; empty: any.
func (t *table) partitions(ctx context.Context, conn *pgconn.PgConn, order string) ([]partition, error) {
	rows, err := query(ctx, conn, `WITH tree AS (SELECT relid, isleaf FROM pg_partition_tree($1::oid::regclass))
		SELECT l.relid::oid, c.relfilenode, l.relid::regclass FROM tree l JOIN pg_class c ON c.oid = l.relid
		WHERE l.isleaf AND l.relid <> $1::oid`+order, fmt.Sprint(t.oid))
	if err != nil {
		return nil, err
	}
	partitions := make([]partition, len(rows))
	for i, row := range rows {
		p := &partitions[i]
		p.name = row[2]
		if p.oid, err = parseOID(row[0]); err != nil {
			return nil, err
		}
		if p.file, err = parseOID(row[1]); err != nil {
			return nil, err
		}
	}
	return partitions, nil
}

// checkPartitions returns the fingerprint of the partitions of the table, and an error if they
// differ from an earlier one, 0: unknown, by rows that the server has not sent.
func (t *table) checkPartitions(ctx context.Context, conn *pgconn.PgConn, earlier uint64) (uint64, error) {
	if !t.partitioned {
		return 0, nil
	}
	partitions, err := t.partitions(ctx, conn, "")
	if err != nil {
		return 0, err
	}
	now := fingerprint(partitions)
	if earlier == 0 || earlier == now {
		return now, nil
	}
	if partitions, err = t.partitions(ctx, conn, lastAttached); err != nil {
		return 0, err
	}
	now = fingerprint(partitions)
	added := 0
	for sum := now; sum != earlier; added++ {
		if added == len(partitions) {
			return 0, fmt.Errorf("a partition was detached, truncated or rewritten (TRUNCATE, VACUUM FULL, CLUSTER or ALTER TABLE), "+
				"and the server does not send which rows it had; %s", startOver)
		}
		sum -= partitions[added].hash()
	}
	for i := range partitions[:added] {
		if err := t.checkAdded(ctx, conn, &partitions[i]); err != nil {
			return 0, err
		}
	}
	return now, nil
}

// checkAdded returns an error if a partition may have rows that it had before it was attached. The
// system columns of a table have the id of the transaction that made it.
func (t *table) checkAdded(ctx context.Context, conn *pgconn.PgConn, p *partition) error {
	oid := fmt.Sprint(p.oid)
	rows, err := query(ctx, conn, `SELECT pg_relation_size($1::oid::regclass), a.xmin, has_table_privilege($1::oid, 'SELECT'),
			(SELECT bool_and(age(i.xmin) >= age(a.xmin)) FROM pg_partition_ancestors($1::oid::regclass) p
			JOIN pg_partition_tree($2::oid::regclass) tree ON tree.relid = p.relid JOIN pg_inherits i ON i.inhrelid = p.relid WHERE p.relid <> $2::oid)
		FROM pg_attribute a WHERE a.attrelid = $1::oid AND a.attname = 'ctid'`, oid, fmt.Sprint(t.oid))
	if err != nil {
		return err
	}
	if len(rows) != 1 {
		return fmt.Errorf("partition %s was dropped while it was examined", p.name)
	}
	size, err := strconv.ParseInt(rows[0][0], 10, 64)
	if err != nil {
		return err
	}
	madeBy, readable, made := rows[0][1], rows[0][2] == "t", rows[0][3] == "t"
	switch {
	case size == 0:
		return nil
	case made && !readable:
		return fmt.Errorf("partition %s is new, and to see whether it was attached with rows the user needs GRANT SELECT ON %s", p.name, p.name)
	case made:
		// Rows of the transaction that made the partition may be older than its attachment.
		rows, err := query(ctx, conn, "SELECT FROM ONLY "+p.name+" WHERE xmin = $1::xid LIMIT 1", madeBy)
		if err != nil || len(rows) == 0 {
			return err
		}
	}
	return fmt.Errorf("partition %s was attached with rows, which the server does not send; %s", p.name, startOver)
}
