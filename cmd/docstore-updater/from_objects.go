package main

import (
	"context"
	"errors"
	"path"
	"strings"

	"docstore/cmd/internal/cli"
	"docstore/ingest"
	"docstore/ingest/files"
	"docstore/queue/bucket"
)

const objectsHelp = `file:// and s3:// read files and objects in the order of their names. In a
PATTERN "*" is any text without a slash and "**" any text; a slash at the end
means everything below. With --follow append also reads those that are added
behind the last one. One that is added or changed before it is not read: append
reads the new ones and then fails, or with --follow logs a warning. Write a file
under a name that begins with a dot, then rename it.`

// openFileURL opens the files of file:///DIRECTORY/PATTERN.
func openFileURL(_ context.Context, url string, o *fromOptions) (ingest.Opener, error) {
	name := strings.TrimPrefix(url, "file://")
	if !path.IsAbs(name) {
		return nil, cli.Usagef("invalid URL %s: want file:///DIRECTORY/PATTERN with an absolute path", url)
	}
	store, err := files.NewDirectory(name)
	if err != nil {
		return nil, err
	}
	return files.NewObjectsOpener(store, o.files(), o.log), nil
}

// openS3URL opens the objects of s3://BUCKET/PATTERN.
func openS3URL(ctx context.Context, url string, o *fromOptions) (ingest.Opener, error) {
	name, selection, _ := strings.Cut(strings.TrimPrefix(url, "s3://"), "/")
	options := o.flags.store
	options.ForeignNames = true
	client, err := bucket.Open(ctx, "s3://"+name, options)
	if errors.Is(err, bucket.ErrURL) {
		return nil, cli.Usagef("%w", err)
	}
	if err != nil {
		return nil, err
	}
	store, err := files.NewBucket(client, "s3://"+name, selection)
	if err != nil {
		return nil, err
	}
	return files.NewObjectsOpener(store, o.files(), o.log), nil
}
