package discovery

import "context"

// WithSelf returns a source that adds the client's number and the number of clients to
// the snapshots of s. Subsetting needs them if the source itself does not number
// clients. They may come from a flag, the environment, or [Ordinal] of the host name.
// Clients with a zone are numbered from 0 in each zone.
func WithSelf(s Source, self, frontends int) Source { return withSelf{s, self, frontends} }

type withSelf struct {
	source          Source
	self, frontends int
}

// Watch implements [Source].
func (w withSelf) Watch(ctx context.Context, update func(Snapshot)) error {
	return w.source.Watch(ctx, func(s Snapshot) {
		s.Self, s.Frontends = w.self, w.frontends
		update(s)
	})
}
