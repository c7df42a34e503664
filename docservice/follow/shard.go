package follow

import (
	"context"

	"docstore/queue/publish"
	"docstore/queue/shard"

	"github.com/cockroachdb/errors"
)

// Shard is one of several shards of a collection.
type Shard struct {
	// Feed is that of the collection. Its Followers share it, and are closed before it.
	Feed *Feed
	// Layout is that of the collection. A manifest with another one is not served: it is of
	// another generation, with other documents in each shard.
	Layout shard.Layout
	// Number is the number of the shard.
	Number int
}

// ErrLayout means that the collection does not have the layout that Options.Shard states.
var ErrLayout = errors.New("the collection has another layout")

// check returns an error unless the layout has the shard.
func (s *Shard) check() error {
	switch {
	case s == nil:
		return nil
	case s.Feed == nil:
		return errors.New("follow: a shard needs the Feed of its collection")
	}
	if err := s.Layout.Check(); err != nil {
		return err
	}
	if s.Number < 0 || s.Number >= s.Layout.Shards {
		return errors.Newf("follow: there is no shard %d of %d", s.Number, s.Layout.Shards)
	}
	return nil
}

// number returns the number of the shard, 0 if it is the only one.
func (s *Shard) number() int {
	if s == nil {
		return 0
	}
	return s.Number
}

// of returns the part of a manifest that a server of the shard serves; nil is the only shard.
func (s *Shard) of(m *publish.Manifest) (*publish.Manifest, error) {
	switch {
	case s == nil && m.Layout.Shards == 1:
		return m, nil
	case s == nil:
		return nil, errors.Wrapf(ErrLayout, "manifest %d has %d shards, and this server follows a collection of one shard; start docserviced with --column", m.Number, m.Layout.Shards)
	case m.Layout.Shards == 1:
		return nil, errors.Wrapf(ErrLayout, "manifest %d has one shard, and this server follows shard %d of %d; start docserviced without --column", m.Number, s.Number, s.Layout.Shards)
	case m.Layout != s.Layout:
		return nil, errors.Wrapf(ErrLayout, "manifest %d has %d shards with the seed %d, and this server follows shard %d of %d with the seed %d", m.Number, m.Layout.Shards, m.Layout.Seed, s.Number, s.Layout.Shards, s.Layout.Seed)
	}
	return m.Shard(s.Number)
}

// manifest reads the manifest that a server of the collection, or of its shard, serves.
func (f *Follower) manifest(ctx context.Context, ref publish.Ref) (*publish.Manifest, error) {
	m, err := f.reader.manifest(ctx, ref)
	if err != nil {
		return nil, err
	}
	return f.options.Shard.of(m)
}
