package simulate

import (
	"context"
	"io"
	"regexp"
	"strconv"
	"time"

	"docstore/internal/vfs"
	"docstore/queue/bucket"
	"docstore/queue/maintain"
	"docstore/queue/publish"
)

// secret is the text of a document that names its id and version.
var secret = regexp.MustCompile(`secret-(doc-\d+)-(\d+)-`)

// checkErased erases all dead documents after the end, and verifies that no byte of them is left in
// the queue, and in the bucket after the next manifest and gc. It needs documents that are not
// compressed.
func (w *world) checkErased() {
	w.mu.Lock()
	erased := w.mu.erased
	w.mu.Unlock()
	if !erased || w.config.Codec != "none" {
		return
	}
	time.Sleep(eraseAfter + time.Second) // all that was replaced is old enough
	before := time.Now().Add(-eraseAfter)
	now := func() time.Time { return time.Now().Add(w.config.Clocks) } // the clock of the ingest host may have been ahead
	ctx, b, fsys := context.Background(), w.store.Objects(), w.ingest().disk.Files()
	for range 2 { // the second one removes what the first one has replaced
		var states []publish.RetainedState
		if !w.config.Copies {
			var err error
			states, err = publish.RetainedStates(ctx, b, queueDir, 1, &publish.Options{FS: fsys})
			w.must(err)
		}
		if len(states) > 1 {
			return // they may hold the documents
		}
		for i := range w.layout.Shards {
			_, err := maintain.Compact(ctx, w.layout.Dir(queueDir, i), &maintain.CompactOptions{
				FS: fsys, MaxDead: 1, DeleteOriginals: true, DeleteAfter: deleteAfter,
				EraseDead: true, EraseAfter: eraseAfter, RetainedEnds: publish.RetainedEnds(states, i), Now: now,
			})
			w.must(err)
		}
		time.Sleep(deleteAfter + time.Second)
	}
	files, err := w.ingest().disk.Find(queueDir, "*")
	w.must(err)
	for _, f := range files {
		content, err := vfs.ReadFile(fsys, f.Name)
		w.must(err)
		w.account.erased(f.Name, content, before)
	}
	if w.config.Copies || w.etcd != nil {
		return // the commits are made in etcd, which has ended
	}
	w.must(w.publishErased(ctx, b, fsys))
	for info, err := range b.List(ctx, "", "") {
		w.must(err)
		body, err := b.Get(ctx, info.Name, 0, -1)
		w.must(err)
		content, err := io.ReadAll(body)
		w.must(err)
		w.must(body.Close())
		w.account.erased("object "+info.Name, content, before)
	}
}

// publishErased publishes the queue after an erasure, and removes all earlier manifests.
func (w *world) publishErased(ctx context.Context, b bucket.Bucket, fsys vfs.FS) error {
	p, err := publish.OpenPublisher(ctx, b, queueDir, &publish.Options{FS: fsys})
	if err != nil {
		return err
	}
	defer func() { _ = p.Close() }() // it has only read
	if _, err := p.Publish(ctx); err != nil {
		return err
	}
	log, err := publish.OpenLog(ctx, b, time.Now)
	if err != nil {
		return err
	}
	if _, err := log.Update(ctx, announceHead); err != nil {
		return err
	}
	_, err = publish.Collect(ctx, b, log, 1, false)
	return err
}

// erased judges that the content of a file has documents that were replaced, deleted or expired before
// a time.
func (a *account) erased(file string, content []byte, before time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, match := range secret.FindAllSubmatch(content, -1) {
		id := string(match[1])
		version, err := strconv.Atoi(string(match[2]))
		if err != nil || len(a.mu.of[id]) == 0 {
			continue
		}
		positions := a.mu.of[id]
		last := a.mu.entries[positions[len(positions)-1]]
		if last.deleted || last.version != version || !last.expires.IsZero() && last.expires.Before(before) {
			a.addWrong("erased", "%s has version %d of %s after its erasure; the newest is version %d (deleted: %v, expires: %v)", file, version, id, last.version, last.deleted, last.expires)
			return
		}
	}
}
