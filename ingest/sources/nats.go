package sources

import (
	"context"
	"os"

	"docstore/ingest"
	"docstore/ingest/nats"
	"docstore/ingest/records"
)

const natsForm = "nats://HOST:PORT[,...]/STREAM"

// openNATSURL opens a stream of NATS JetStream.
func openNATSURL(_ context.Context, text string, o *Options) (ingest.Opener, error) {
	u, err := o.parseStream(text, natsForm, "subject", "id", "format", "creds")
	if err != nil {
		return nil, err
	}
	config := nats.Config{
		Servers: u.hosts, Stream: u.path, Subject: u.options["subject"], ID: u.options["id"],
		Follow: o.Follow, User: u.options["user"], Credentials: u.options["creds"],
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
	if config.TLS, err = u.tls(o.Logger); err != nil {
		return nil, err
	}
	opener, err := nats.NewOpener(config)
	if err != nil {
		return nil, o.refuse(text, "%w", err)
	}
	return opener, nil
}
