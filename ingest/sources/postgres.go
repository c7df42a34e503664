package sources

import (
	"context"
	"net/url"

	"docstore/ingest"
	"docstore/ingest/postgres"
	"docstore/ingest/records"
)

const postgresForm = "postgres://USER@HOST:PORT/DATABASE?table=SCHEMA.TABLE"

// openPostgres opens a table or query of PostgreSQL.
func openPostgres(_ context.Context, text string, o *Options) (ingest.Opener, error) {
	if o.Format != records.FormatAuto {
		return nil, invalid("%sformat %s is for files; rows become JSON", o.Prefix, o.Format)
	}
	if err := o.refuseID("the id is the primary key, or key=COLUMN,... of a query"); err != nil {
		return nil, err
	}
	if u, err := url.Parse(text); err == nil {
		if _, given := u.User.Password(); given || u.Query().Has("password") {
			return nil, invalid("%sfrom: give the password in PGPASSWORD or by passfile=FILE, because other users can read command lines", o.Prefix)
		}
	}
	options, err := postgres.ParseURL(text)
	if err != nil {
		return nil, invalid("%sfrom: %w; want %s", o.Prefix, err, postgresForm)
	}
	if o.Whole && options.Table != "" {
		return nil, invalid("%sreplace cannot read table=%s, which is followed by its changes: write query=SELECT * FROM %[2]s&key=COLUMN,...", o.Prefix, options.Table)
	}
	options.Follow, options.Logger = o.Follow, o.Logger
	opener, err := postgres.New(options)
	if err != nil {
		return nil, invalid("%sfrom: %w", o.Prefix, err)
	}
	return opener, nil
}
