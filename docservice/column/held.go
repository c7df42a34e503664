package column

import (
	"slices"
	"sync"
	"time"

	"docstore/docservice/collection"
	"docstore/docservice/follow"
	"docstore/docservice/readiness"
	"docstore/internal/vfs"
	queueshard "docstore/queue/shard"

	"github.com/cockroachdb/errors"
)

// held is a shard on this server. Its fields are those of the goroutine of Column.run, except
// for mu.
type held struct {
	number   int
	dir      string
	follower Follower // nil: it could not be opened
	retry    time.Time
	problem  error
	moved    time.Time

	mu struct {
		sync.Mutex
		collection *collection.Collection // the current one
		served     bool
		removed    bool
	}
}

// openPause is the time after which a shard that could not be opened is tried again.
const openPause = 2 * time.Second

// open opens a shard. If that fails, it is tried again later.
func (c *Column) open(h *held, now time.Time) {
	if h.follower != nil || now.Before(h.retry) {
		return
	}
	err := vfs.MakeDir(c.options.FS, h.dir)
	if err == nil {
		h.follower, err = c.options.Open(c.first.Layout, h.number, h.dir, func(next *collection.Collection) { c.replace(h, next) })
	}
	h.problem, h.retry = err, now.Add(openPause)
	if err != nil {
		h.follower = nil // not a nil pointer in an interface
		c.logger.Error("a shard cannot be opened; retrying", "shard", h.number, "error", err)
	}
}

// replace makes a collection the current one of a shard.
func (c *Column) replace(h *held, next *collection.Collection) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.collection = next
	if h.mu.served && !h.mu.removed {
		c.options.Service.Replace(next)
	}
}

// admit serves a shard that is ready. It returns whether the shard is served, and its state.
func (c *Column) admit(h *held) (served bool, s follow.Status) {
	if h.follower == nil {
		return false, s
	}
	s = h.follower.Status()
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.mu.served && s.Files.IsReady() && h.mu.collection != nil {
		h.mu.served = true
		c.options.Service.Replace(h.mu.collection)
		c.logger.Info("serving a shard", "shard", h.number, "manifest", s.Served)
	}
	return h.mu.served, s
}

// copyState returns the state of a shard that is not served, from that of its files.
func (h *held) copyState(files readiness.Report) readiness.Report {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.mu.collection == nil {
		return files
	}
	return readiness.Copy(files, h.mu.collection.Status().Index.Report())
}

// remove stops serving a shard and removes its files when the calls in progress have ended.
func (c *Column) remove(h *held) {
	h.mu.Lock()
	h.mu.removed = true
	h.mu.Unlock()
	c.options.Service.Remove(queueshard.Name(c.options.Collection, h.number))
	c.logger.Info("removing a shard that has moved", "shard", h.number, "moved", h.moved)
	c.running.Go(func() {
		defer func() { c.removed <- h.number }()
		select {
		case <-time.After(c.options.DrainTime):
		case <-c.alive.Done():
		}
		if err := h.discard(c.options.FS); err != nil {
			c.logger.Error("the files of a moved shard cannot be removed; the server tries again when it starts", "shard", h.number, "error", err)
		}
	})
}

func (h *held) discard(fsys vfs.FS) error {
	var err error
	if h.follower != nil {
		err = h.follower.Close()
	}
	return errors.CombineErrors(err, fsys.RemoveAll(h.dir))
}

// close closes a shard and keeps its files.
func (c *Column) close(h *held) error {
	h.mu.Lock()
	h.mu.removed = true
	h.mu.Unlock()
	c.options.Service.Remove(queueshard.Name(c.options.Collection, h.number))
	if h.follower == nil {
		return nil
	}
	return h.follower.Close()
}

// present returns the shards with a directory.
func present(fsys vfs.FS, dir string, layout queueshard.Layout) ([]int, error) {
	names, err := fsys.List(dir)
	if err != nil {
		return nil, err
	}
	var list []int
	for i := range layout.Shards {
		if slices.Contains(names, layout.Dir("", i)) {
			list = append(list, i)
		}
	}
	return list, nil
}
