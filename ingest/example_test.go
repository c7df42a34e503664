package ingest_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"docstore/ingest"
	"docstore/ingest/sources"
	"docstore/queue/shard"
	"docstore/queue/shardset"
)

// Each run appends the documents that the queue does not have.
func Example() {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		fmt.Println(err)
	}
	defer os.RemoveAll(dir)
	for day, document := range []string{`{"id":"17"}`, `{"id":"18"}`} {
		name := fmt.Sprintf("%s/day-%d.ndjson", dir, day)
		if err := os.WriteFile(name, []byte(document+"\n"), 0o600); err != nil {
			fmt.Println(err)
		}
		at, err := appendNew(context.Background(), "file://"+dir+"/*.ndjson", dir+"/queue")
		fmt.Println(at.Documents, strings.TrimPrefix(at.Place, dir), err)
	}
	// Output:
	// 1 /day-0.ndjson:1 <nil>
	// 1 /day-1.ndjson:1 <nil>
}

func appendNew(ctx context.Context, url, queue string) (at ingest.Progress, err error) {
	in, err := sources.Open(ctx, url, sources.Options{})
	if err != nil {
		return at, err
	}
	writer, err := shardset.Open(queue, &shardset.Options{Layout: shard.Layout{Shards: 1}})
	if err != nil {
		return at, err
	}
	defer func() { err = errors.Join(err, writer.Close()) }()
	to := &ingest.CatchUp{Writer: writer}
	cursor, err := to.Resume(in.Opener)
	if err != nil {
		return at, err
	}
	source, err := in.Opener.Open(ctx, cursor)
	if err != nil {
		return at, err
	}
	defer source.Close()
	appender := ingest.NewAppender(source, in.Opener.Ends(), to, ingest.Options{Parsing: in.Parsing})
	err = appender.Run(ctx)
	return appender.Progress(), err
}
