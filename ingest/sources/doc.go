// Package sources opens the sources that a URL, names of files, or a list in a YAML file name.
//
//	in, err := sources.Open(ctx, "kafka://kafka1:9092/jobs", sources.Options{Follow: true})
//	source, err := in.Opener.Open(ctx, cursor)
//	appender := ingest.NewAppender(source, in.Opener.Ends(), writer, ingest.Options{Parsing: in.Parsing})
//
// The forms of URLs are
//
//	file:///DIRECTORY/PATTERN                    files, see package files
//	s3://BUCKET/PATTERN                          objects
//	kafka://HOST:PORT[,...]/TOPIC                see package kafka
//	nats://HOST:PORT[,...]/STREAM                see package nats
//	postgres://USER@HOST:PORT/DATABASE?table=T   see package postgres
//
// A list has names, which are kept in the queue, and URLs. Its entries can have the options format,
// id, id-template, keep, drop, rename, encoding, delimiter, columns, header, typed-cells and rate,
// which replace Options:
//
//	sources:
//	  - name: archive
//	    from: file:///srv/archive/*.ndjson.gz
//	  - name: new
//	    from: file:///srv/new/*.csv
//	    delimiter: ;
//	removed: [old]
package sources
