package column

import (
	"context"
	"crypto/rand"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"docstore/boxcarrpc/discovery/etcd"
	"docstore/docservice/placement"
	"docstore/docservice/placement/etcdmap"
	"docstore/docservice/readiness"
	"docstore/internal/ctxtime"
	"docstore/internal/vfs"
	queueshard "docstore/queue/shard"

	"github.com/cockroachdb/errors"
)

const (
	columnName = "COLUMN"
	// tokenName is the file with the token of the server's row.
	tokenName = "TOKEN"
	mapName   = "placement.json"

	// tick is the interval at which the readiness of shards is checked.
	tick = 100 * time.Millisecond
	// diskInterval is the interval at which the used bytes are counted.
	diskInterval = 5 * time.Second
	// retryPause is the pause after a failed operation on etcd.
	retryPause = 500 * time.Millisecond
)

// MapFile returns the file of the last map in the directory of a collection.
func MapFile(dir string) string { return filepath.Join(dir, mapName) }

// Column is the part of a server that holds the shards of its column.
type Column struct {
	options Options
	logger  *slog.Logger
	alive   context.Context //nolint:containedctx // ended by stop
	stop    context.CancelFunc
	running sync.WaitGroup
	leaving sync.Once
	closing sync.Once
	closed  error
	started chan struct{} // closed when the first shards are open

	// member is the membership in etcd, which ends before alive.
	member  context.Context //nolint:containedctx // ended by leave
	leave   context.CancelFunc
	members sync.WaitGroup

	// Used by the goroutine of run only.
	shards   map[int]*held
	removing map[int]bool
	removed  chan int       // numbers of shards whose files are removed
	first    *placement.Map // its layout is served; nil: none was read
	disk     disk
	diskRead time.Time
	expected []int
	start    map[int]bool // to be served before the server is ready
	ready    bool         // it has been ready

	mu struct {
		sync.Mutex
		column    string
		registry  *etcd.Registry // of the column; nil: not open yet
		number    *etcd.Number   // nil: not claimed yet
		state     placement.ServerState
		reporter  *etcdmap.Reporter
		announced Announced
		status    Status
	}
}

// Open starts to hold the shards of a column. It waits for etcd only in the background. If
// the last map is known, the shards of the server are open when Open returns.
func Open(o Options) (*Column, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	if err := vfs.MakeDir(o.FS, o.Dir); err != nil {
		return nil, err
	}
	c := &Column{
		options: o, logger: o.Logger.With("collection", o.Collection),
		shards: map[int]*held{}, start: map[int]bool{}, removing: map[int]bool{}, removed: make(chan int, queueshard.MaxShards), started: make(chan struct{}),
	}
	if c.mu.column, err = c.lastColumn(); err != nil {
		return nil, err
	}
	c.alive, c.stop = context.WithCancel(context.Background())
	c.member, c.leave = context.WithCancel(c.alive)
	c.mu.status.Readiness = readiness.Report{State: readiness.WaitingForPlacement, Cause: "the placement was not read yet"}
	c.running.Go(c.run)
	c.members.Go(c.join)
	c.members.Go(c.watchAnnounced)
	c.members.Go(c.ensureMap)
	c.members.Go(c.place)
	if m, _ := o.Store.Map(); m != nil && c.Name() != "" {
		<-c.started
	}
	return c, nil
}

// Name returns the name of the column; empty: it was not chosen yet.
func (c *Column) Name() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.column
}

// lastColumn returns the name of the column if it need not be chosen.
func (c *Column) lastColumn() (string, error) {
	if c.options.Column != Auto {
		return c.options.Column, nil
	}
	content, err := vfs.ReadFile(c.options.FS, filepath.Join(c.options.Dir, columnName))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	name := strings.TrimSpace(string(content))
	return name, errors.Wrapf(etcdmap.CheckColumn(name), "%s: remove the file to choose another column", filepath.Join(c.options.Dir, columnName))
}

// token returns the token of the server's row: a random text that is created with the
// directory and shows that the previous process with this directory has ended.
func (c *Column) token() (string, error) {
	path := filepath.Join(c.options.Dir, tokenName)
	content, err := vfs.ReadFile(c.options.FS, path)
	if errors.Is(err, fs.ErrNotExist) {
		content = []byte(rand.Text() + "\n")
		err = vfs.WriteFileAtomic(c.options.FS, path, content)
	}
	return strings.TrimSpace(string(content)), err
}

// Leave ends the membership: clients and the placer forget this server. It is idempotent.
func (c *Column) Leave() {
	c.leaving.Do(func() {
		c.leave()
		c.members.Wait()
	})
}

// Close leaves, and closes the shards. It is idempotent.
func (c *Column) Close() error {
	c.closing.Do(func() {
		c.Leave()
		c.stop()
		c.running.Wait()
		var errs []error
		for _, h := range c.shards {
			if !c.removing[h.number] {
				errs = append(errs, c.close(h))
			}
		}
		c.closed = errors.Join(errs...)
	})
	return c.closed
}

// run holds the shards of the map until the Column is closed. When the server leaves, the
// placer no longer waits for it: it keeps what it has and follows no more changes, since a
// shard that is assigned to the column now is on the other rows only.
func (c *Column) run() {
	started := sync.OnceFunc(func() { close(c.started) })
	defer started()
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for {
		m, changed := c.options.Store.Map()
		if m != nil && c.Name() != "" && c.member.Err() == nil {
			c.step(m, time.Now())
			started()
		}
		select {
		case <-c.alive.Done():
			return
		case <-changed:
		case <-ticker.C:
		case i := <-c.removed:
			delete(c.removing, i)
			delete(c.shards, i)
			c.diskRead = time.Time{}
		}
	}
}

// step takes the actions that the map demands now.
func (c *Column) step(m *placement.Map, now time.Time) {
	if c.first == nil {
		if err := c.begin(m, now); err != nil {
			c.setStatus(Status{Readiness: readiness.Report{State: readiness.Faulted, Cause: err.Error()}})
			return
		}
	}
	if m.Layout != c.first.Layout {
		c.setStatus(Status{Readiness: readiness.Report{
			State: readiness.Faulted,
			Cause: fmt.Sprintf("the placement has %d shards and this server %d: restart it with another --data", m.Layout.Shards, c.first.Layout.Shards),
		}})
		return
	}
	if now.Sub(c.diskRead) >= diskInterval {
		c.readDisk(now)
	}
	present := map[int]shard{}
	for i, h := range c.shards {
		present[i] = shard{moved: h.moved, bytes: c.bytesOf(i)}
	}
	a := decide(m, c.Name(), present, c.disk, now, c.options.KeepMoved)
	if !slices.Equal(a.expect, c.expected) {
		c.options.Service.Expect(c.options.Collection, a.expect)
		c.expected = a.expect
	}
	for _, i := range a.open {
		c.shards[i] = c.newHeld(i)
	}
	for _, i := range a.leave {
		c.shards[i].moved = now
		c.logger.Info("a shard has moved away; it is kept for a time", "shard", i, "to", m.Shards[i].Column, "keep", c.options.KeepMoved)
	}
	for _, i := range a.stay {
		c.shards[i].moved = time.Time{}
	}
	for _, i := range a.remove {
		if !c.removing[i] {
			c.removing[i] = true
			c.remove(c.shards[i])
		}
	}
	if !c.ready {
		for _, i := range a.expect {
			c.start[i] = true
		}
	}
	for _, i := range slices.Sorted(maps.Keys(c.shards)) {
		if !c.removing[i] {
			c.open(c.shards[i], now)
		}
	}
	c.report(m)
}

// begin serves the collection by shards, and takes up the shards that have files.
func (c *Column) begin(m *placement.Map, now time.Time) error {
	numbers, err := present(c.options.FS, c.options.Dir, m.Layout)
	if err != nil {
		return err
	}
	c.first = m
	c.options.Service.Divide(c.options.Collection, m.Layout)
	for _, i := range numbers {
		h := c.newHeld(i)
		if p := m.Shards[i]; p.Column != c.Name() && p.Next != c.Name() {
			h.moved = now // the time of the move is not known
		}
		c.shards[i] = h
	}
	return nil
}

func (c *Column) newHeld(i int) *held {
	return &held{number: i, dir: c.first.Layout.Dir(c.options.Dir, i)}
}

// readDisk counts the used bytes.
func (c *Column) readDisk(now time.Time) {
	c.diskRead = now
	used, limit, err := c.options.Disk()
	if err != nil {
		c.logger.Warn("the used bytes of the data directory are not known", "error", err)
		return
	}
	c.disk = disk{used: used, limit: limit}
}

// bytesOf returns the announced bytes of a shard.
func (c *Column) bytesOf(i int) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if i < len(c.mu.announced.Bytes) {
		return c.mu.announced.Bytes[i]
	}
	return 0
}

// again calls f until it succeeds or ctx ends, and logs each error once.
func (c *Column) again(ctx context.Context, operation string, f func() error) {
	for logged := ""; ; {
		err := f()
		if err == nil || ctx.Err() != nil {
			return
		}
		if err.Error() != logged {
			logged = err.Error()
			c.logger.Warn(operation+" failed; retrying", "error", err)
		}
		if !ctxtime.Sleep(ctx, retryPause) {
			return
		}
	}
}
