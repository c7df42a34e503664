package queue

import (
	"context"
	"errors"
	"fmt"
	"time"

	"docstore/internal/vfs"
	"docstore/queue/internal/segment"
)

// wait calls OnCaughtUp and waits for the next poll or a change notification.
func (t *tailer) wait(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if !t.caughtUp && t.placeExists() {
		t.caughtUp = true
		if t.r.options.OnCaughtUp != nil {
			t.r.options.OnCaughtUp(t.delivered)
		}
	}
	if err := t.stall(); err != nil {
		return err
	}
	if !t.watched {
		t.watched = true
		if t.watch = t.r.watch(); t.watch != nil {
			return nil // changes before the watch are not reported
		}
	}
	var hints <-chan struct{}
	if t.watch != nil {
		hints = t.watch.C
	}
	timer := time.NewTimer(t.r.options.PollInterval)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.r.done:
		return ErrClosed
	case <-hints:
		return nil
	case <-timer.C:
		return nil
	}
}

// watch starts a watch of the directory, or returns nil if none is available. It logs the
// reason once.
func (r *Reader) watch() *vfs.Watch {
	w, err := vfs.WatchDir(r.options.FS, r.dir)
	if err == nil {
		return w
	}
	if !errors.Is(err, errors.ErrUnsupported) && !r.unwatched.Swap(true) {
		r.options.Logger.Warn("the queue's directory cannot be watched; new entries are found by polling",
			"interval", r.options.PollInterval, "error", err)
	}
	return nil
}

// stallTimeout is the time after which a sealed segment without a footer counts as
// damaged if it has not changed and a later segment exists. There is no other way to tell
// a damaged footer from one that has not arrived.
const stallTimeout = 30 * time.Second

// placeExists reports whether the tail's place is in an existing file, or is the start of a
// segment.
func (t *tailer) placeExists() bool { return t.reached || t.offset == 0 }

// stall returns an error if a segment has been incomplete and unchanged for stallTimeout.
func (t *tailer) stall() error {
	sealed, open := &t.files[0], &t.files[1]
	short := !t.placeExists() && (sealed.info != vfs.Info{} || open.info != vfs.Info{})
	if sealed.info == (vfs.Info{}) && !short {
		return nil
	}
	now := time.Now()
	if t.unchanged.IsZero() {
		t.unchanged = now
	}
	if now.Sub(t.unchanged) < stallTimeout {
		return nil
	}
	t.unchanged = time.Time{}
	if short {
		at := Address{Segment: t.segment, Block: uint32(t.offset), Index: t.index}
		return fmt.Errorf("%w: segment %d in %s has been shorter than the position %s for %s: it is an older copy than the file that was read before",
			ErrForked, t.segment, t.r.dir, at, stallTimeout)
	}
	l, err := t.r.list()
	if err != nil || !l.After(t.segment) {
		return err
	}
	return &CorruptionError{
		Path: segment.Path(t.r.dir, t.segment, segment.SealedSuffix), Segment: t.segment, Offset: max(0, sealed.info.Size-segment.FooterBytes),
		Reason: "the sealed segment has no valid footer and does not change while later segments are there",
	}
}

// gap returns an error if a scan that has reached the end has missed entries.
func (t *tailer) gap() error {
	l, err := t.r.list()
	if err != nil {
		return err
	}
	switch {
	case l.After(t.segment):
		return fmt.Errorf("%w: segment %d is missing or not whole in %s, though segment %d is there",
			ErrUnavailable, t.segment, t.r.dir, l.Last())
	case t.files[0].info != vfs.Info{}:
		return fmt.Errorf("%w: sealed segment %d is not whole in %s",
			ErrUnavailable, t.segment, t.r.dir)
	case !t.placeExists():
		return fmt.Errorf("%w: segment %d in %s does not reach up to the position %d",
			ErrUnavailable, t.segment, t.r.dir, t.offset)
	}
	return nil
}
