package discovery

import "context"

// WithSelf is a source whose watchers know their own number among so many
// frontends, from a flag, the environment, or [Ordinal] of their host's name:
// what subsetting needs where the source itself gives out no numbers.
func WithSelf(s Source, self, frontends int) Source { return withSelf{s, self, frontends} }

type withSelf struct {
	source          Source
	self, frontends int
}

// Watch reports what the source reports.
func (w withSelf) Watch(ctx context.Context, update func(Snapshot)) error {
	return w.source.Watch(ctx, func(s Snapshot) {
		s.Self, s.Frontends = w.self, w.frontends
		update(s)
	})
}
