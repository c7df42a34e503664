package publish

import "github.com/cockroachdb/errors"

// Extends reports whether the servers of a group apply the increments of the announced
// manifest. Pinned servers do not: they serve a manifest exactly.
func (r Record) Extends(group string) bool {
	return r.PinOf(group) == nil && r.Target(group) == r.Announced && !r.IsBad(r.Announced.Number)
}

// announcesNext reports whether a stream of a queue may announce what follows the head: the
// head is announced, nothing else is pinned for all servers, and announcing was not stopped.
func (r Record) announcesNext(queue string) bool {
	return r.whyNot(queue) == ""
}

// whyNot is the reason why announcesNext is false.
func (r Record) whyNot(queue string) string {
	switch {
	case r.Held != "":
		return r.Held
	case r.PinOf("") != nil:
		return "all servers are pinned"
	case r.Frozen, r.IsBad(r.Head.Number):
		return "the newest manifest is marked as bad"
	case r.Head != r.Announced || r.Base != nil || r.Queue != queue && r.Queue != "":
		return "the newest manifest is not announced"
	}
	return ""
}

// commitNext is commit. A stream also announces the manifest, if it may.
func (r Record) commitNext(owner, queue string, m *Manifest, digest Digest, partial, stream bool) (Record, error) {
	announces := stream && r.announcesNext(queue)
	r, err := r.commit(owner, queue, m, digest, partial)
	if err != nil || !announces {
		return r, err
	}
	r.Validated = r.Head
	return r.Announce(r.Head)
}

// hold stops the announcements of a stream until Announce is called.
func (r Record) hold(owner, reason string) (Record, error) {
	if r.Owner != owner {
		return Record{}, errors.Wrapf(ErrFenced, "epoch %d", r.Epoch)
	}
	r = r.clone()
	r.Held = reason
	return r, nil
}
