package main

import (
	"context"
	"os"

	"docstore/cmd/internal/cli"
	"docstore/ingest"
	"docstore/ingest/nats"
	"docstore/ingest/records"
)

const natsForm = "nats://HOST:PORT[,...]/STREAM"

const natsHelp = `nats:// reads a stream of JetStream: the id is the part of the subject that
the wildcards of subject= match. A message with the header KV-Operation DEL or
PURGE deletes it, as in a key-value bucket, the stream KV_NAME. Append stops if
messages were discarded before it read them, the stream was created again, or an
older copy of it was restored. A bucket with a TTL needs a TTL of markers.
Options of the URL, such as nats://n1:4222/JOBS?subject=jobs.*&format=raw:

  subject=SUBJECT   read only this one, with wildcards; default all
  id=subject        default; or header:NAME, or document (see --id-field)
  format=json       messages are documents (default); or raw
  user, password-file, or creds=FILE
  tls=true, ca=FILE, cert=FILE, key=FILE`

// openNATSURL opens a stream of NATS JetStream.
func openNATSURL(_ context.Context, text string, o *fromOptions) (ingest.Opener, error) {
	u, err := parseStreamURL(text, natsForm, "subject", "id", "format", "creds")
	if err != nil {
		return nil, err
	}
	config := nats.Config{
		Servers: u.hosts, Stream: u.path, Subject: u.options["subject"], ID: u.options["id"],
		Follow: o.flags.follow, User: u.options["user"], Credentials: u.options["creds"],
	}
	config.Decoder.Valid = records.Valid
	if config.ID == "" {
		config.ID = nats.IDOfSubject
	}
	if config.ID != nats.IDOfDocument {
		if err := o.refuseID("the id is not in the message; write " + natsForm + "?id=document"); err != nil {
			return nil, err
		}
	}
	if config.Decoder.Format, err = u.format(o); err != nil {
		return nil, err
	}
	if config.Password, err = u.password(); err != nil {
		return nil, err
	}
	if config.Credentials != "" {
		if _, err := os.Stat(config.Credentials); err != nil {
			return nil, err
		}
	}
	if config.TLS, err = u.tls(o.log); err != nil {
		return nil, err
	}
	opener, err := nats.NewOpener(config)
	if err != nil {
		return nil, cli.Usagef("--from %s: %w", text, err)
	}
	return opener, nil
}
