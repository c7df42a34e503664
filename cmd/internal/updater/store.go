package updater

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"docstore/cmd/internal/cli"
	"docstore/internal/contact"
	"docstore/queue/bucket"
	"docstore/queue/publish"
	"docstore/queue/publish/etcdlog"
)

// bucketFlags are the flags of a command that works on a collection in a bucket.
type bucketFlags struct {
	url     string
	options bucket.Options
	etcd    string
}

func (f *bucketFlags) add(command *cobra.Command) {
	command.Flags().StringVar(&f.url, "bucket", "", "URL of the collection: s3://BUCKET/PREFIX or file:///DIRECTORY")
	if err := command.MarkFlagRequired("bucket"); err != nil {
		panic(err) // the flag was defined a line above
	}
	addS3Flags(command, &f.options)
	addEtcdFlag(command.Flags(), &f.etcd)
}

func addEtcdFlag(flags *pflag.FlagSet, endpoints *string) {
	flags.StringVar(endpoints, "etcd", "", "etcd that holds the commits of the collection: HOST:PORT[,...] or "+
		"etcd://HOST:PORT[,...]/PREFIX?ca=FILE&cert=FILE&key=FILE&user=NAME&password-file=FILE")
}

// store is the bucket of a collection, and the etcd that holds its commits, if any.
type store struct {
	*bucket.Client
	etcd    *etcdlog.Arbiter // nil: none
	contact *contact.Contact // with the store
}

// Arbiter makes a store a publish.Coordinated.
func (s *store) Arbiter() publish.Arbiter {
	if s.etcd == nil {
		return nil
	}
	return s.etcd
}

// Close closes connections.
func (s *store) Close() {
	s.CloseIdle()
	if s.etcd != nil {
		_ = s.etcd.Close() // of a connection without requests
	}
}

// open sends no request. The caller closes the store. The logger gets failures at once, and not
// only when a request is given up.
func (f *bucketFlags) open(ctx context.Context, logger *slog.Logger) (*store, error) {
	s := &store{contact: contact.New("the object store", logger)}
	if f.etcd != "" {
		if err := etcdlog.Check(f.etcd); err != nil {
			return nil, cli.Usagef("--etcd: %w", err)
		}
		var err error
		if s.etcd, err = etcdlog.Open(f.etcd, nil); err != nil {
			return nil, err
		}
	}
	var err error
	options := f.options
	options.Observe = s.contact.Observe
	s.Client, err = bucket.Open(ctx, f.url, options)
	if errors.Is(err, bucket.ErrURL) {
		return nil, cli.Usagef("%w", err)
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

// openLog opens the store and its log. The caller closes the store.
func (f *bucketFlags) openLog(ctx context.Context, env *cli.Env) (*store, *publish.Log, error) {
	s, err := f.open(ctx, env.Log)
	if err != nil {
		return nil, nil, err
	}
	log, err := publish.OpenLog(ctx, s, env.Now)
	if err != nil {
		s.Close()
		return nil, nil, fmt.Errorf("%s: %w", f.url, err)
	}
	return s, log, nil
}
