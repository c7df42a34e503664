package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"time"

	"docstore/cmd/internal/cli"
	"docstore/internal/vfs"
	"docstore/queue"
	"docstore/queue/bucket"
	"docstore/queue/publish"
)

// publishInterval is how often append --publish looks for newly sealed segments.
const publishInterval = time.Second

// publishing publishes the segments that append seals.
type publishing struct {
	env    *cli.Env
	dir    string
	url    string
	bucket *bucket.Client

	publisher *publish.Publisher // nil until a segment is sealed, and after a failure
	sealed    queue.SegmentID    // the last segment that was published

	cancel  context.CancelFunc
	running sync.WaitGroup
}

// startPublishing publishes in the background until finish. A failure is logged, and
// retried: appending does not depend on the store.
func startPublishing(ctx context.Context, env *cli.Env, dir, url string, options bucket.Options) (*publishing, error) {
	flags := bucketFlags{url: url, options: options}
	b, err := flags.open(ctx)
	if err != nil {
		return nil, err
	}
	p := &publishing{env: env, dir: dir, url: url, bucket: b}
	ctx, p.cancel = context.WithCancel(ctx)
	p.running.Go(func() { p.run(ctx) })
	return p, nil
}

func (p *publishing) run(ctx context.Context) {
	ticker := time.NewTicker(publishInterval)
	defer ticker.Stop()
	problem := ""
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		err := p.publish(ctx)
		switch {
		case err == nil:
			problem = ""
		case ctx.Err() == nil && err.Error() != problem:
			problem = err.Error()
			p.env.Log.Warn("publishing failed; retrying", "url", p.url, "error", err)
		}
	}
}

// publish publishes the sealed segments, if there are new ones.
func (p *publishing) publish(ctx context.Context) error {
	head, err := queue.ReadHead(vfs.OS, p.dir)
	if errors.Is(err, fs.ErrNotExist) || err == nil && head.Sealed == p.sealed {
		return nil
	}
	if err != nil {
		return err
	}
	if p.publisher == nil {
		if p.publisher, err = publish.OpenPublisher(ctx, p.bucket, p.dir, &publish.Options{Now: p.env.Now}); err != nil {
			p.publisher = nil
			return err
		}
	}
	published, err := p.publisher.Publish(ctx)
	if err != nil {
		err = errors.Join(err, p.publisher.Close())
		p.publisher = nil // another publisher may have taken over: take over again
		return err
	}
	p.sealed = head.Sealed
	if published.New {
		p.env.Log.Info("published", "url", p.url, "manifest", published.Ref.Number, "bytes", published.Uploaded)
	}
	return nil
}

// finish publishes what was sealed at last, after the writer was closed.
func (p *publishing) finish(ctx context.Context) error {
	p.cancel()
	p.running.Wait()
	err := p.publish(context.WithoutCancel(ctx))
	if p.publisher != nil {
		err = errors.Join(err, p.publisher.Close())
	}
	p.bucket.CloseIdle()
	if err != nil {
		return fmt.Errorf("the documents are in %s but are not published: %w; run docstore-updater publish", p.dir, err)
	}
	return nil
}
