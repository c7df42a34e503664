package main

import (
	"context"
	"net/url"

	"docstore/cmd/internal/cli"
	"docstore/ingest"
	"docstore/ingest/postgres"
	"docstore/ingest/records"
)

const postgresForm = "postgres://USER@HOST:PORT/DATABASE?table=SCHEMA.TABLE"

const postgresHelp = `postgres:// reads a table of PostgreSQL 13 or later, then its changes, through a
replication slot; wal_level must be logical. A document has the columns of a
row, and the primary key as id: several columns are joined by commas, with a
backslash before each comma and backslash of a value. Append stops if changes
were lost, and at TRUNCATE; another queue then reads the whole table. Drop the
slot of a queue that is not used any more: it keeps the log of the server.
Options besides those of libpq, such as sslmode=verify-full and passfile=FILE:

  table=SCHEMA.TABLE    the schema is public by default
  slot=NAME             default docstore_TABLE; each queue needs another one
  publication=NAME      default that of the slot; made at the first start
  query=SELECT...       read rows instead, without changes
  key=COLUMN,...        the id of a query's rows, in whose order they are read;
                        the next append reads only rows behind the last key`

// openPostgres opens a table or query of PostgreSQL.
func openPostgres(_ context.Context, text string, o *fromOptions) (ingest.Opener, error) {
	if o.format != records.FormatAuto {
		return nil, cli.Usagef("--format %s is for files; rows become JSON", o.format)
	}
	if err := o.refuseID("the id is the primary key, or key=COLUMN,... of a query"); err != nil {
		return nil, err
	}
	if u, err := url.Parse(text); err == nil {
		if _, given := u.User.Password(); given || u.Query().Has("password") {
			return nil, cli.Usagef("--from: give the password in PGPASSWORD or by passfile=FILE, because other users can read command lines")
		}
	}
	options, err := postgres.ParseURL(text)
	if err != nil {
		return nil, cli.Usagef("--from: %w; want %s", err, postgresForm)
	}
	options.Follow, options.Logger = o.flags.follow, o.log
	opener, err := postgres.New(options)
	if err != nil {
		return nil, cli.Usagef("--from: %w", err)
	}
	return opener, nil
}
