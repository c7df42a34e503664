package sources

import (
	"context"
	"errors"
	"path"
	"strings"

	"docstore/ingest"
	"docstore/ingest/files"
	"docstore/queue/bucket"
)

// openFileURL opens the files of file:///DIRECTORY/PATTERN.
func openFileURL(_ context.Context, url string, o *Options) (ingest.Opener, error) {
	name := strings.TrimPrefix(url, "file://")
	if !path.IsAbs(name) {
		return nil, invalid("invalid URL %s: want file:///DIRECTORY/PATTERN with an absolute path", url)
	}
	store, err := files.NewDirectory(name)
	if err != nil {
		return nil, err
	}
	return files.NewObjectsOpener(store, o.files(), o.Logger), nil
}

// openS3URL opens the objects of s3://BUCKET/PATTERN.
func openS3URL(ctx context.Context, url string, o *Options) (ingest.Opener, error) {
	name, selection, _ := strings.Cut(strings.TrimPrefix(url, "s3://"), "/")
	options := o.Store
	options.ForeignNames = true
	client, err := bucket.Open(ctx, "s3://"+name, options)
	if errors.Is(err, bucket.ErrURL) {
		return nil, invalid("%w", err)
	}
	if err != nil {
		return nil, err
	}
	store, err := files.NewBucket(client, "s3://"+name, selection)
	if err != nil {
		return nil, err
	}
	return files.NewObjectsOpener(store, o.files(), o.Logger), nil
}
