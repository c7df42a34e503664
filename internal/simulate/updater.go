package simulate

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"docstore/ingest"
	"docstore/ingest/files"
	"docstore/ingest/records"
	"docstore/internal/contact"
	"docstore/internal/ctxtime"
	"docstore/internal/simulate/disk"
	"docstore/internal/simulate/network"
	"docstore/internal/vfs"
	"docstore/queue/bucket"
	"docstore/queue/maintain"
	"docstore/queue/publish"
	"docstore/queue/publish/etcdlog"
	"docstore/queue/shard"
	"docstore/queue/shardset"
)

const (
	// queueDir is the queue on the ingest host.
	queueDir = "/queue"
	// restartPause is the pause before a process that has ended is started again.
	restartPause = time.Second
	// deleteAfter is the age of a rewrite at which compact removes the files that it replaced.
	deleteAfter = 5 * time.Second
)

// updater is an ingest host: append --follow, and the commands that cron starts.
type updater struct {
	w    *world
	name string
	ip   string
	disk *disk.Disk
	// clock is that of the host. If servers serve copies it is right, because copier.goals compares
	// its time with that of the account.
	clock clock

	mu struct {
		sync.Mutex
		process   *updaterProcess // nil: none is running
		begun     bool            // records are durable
		held      int             // faults that keep append from starting
		read      string          // place of the last record that is durable; empty: unknown
		startOver bool            // append said that it cannot continue in the log
		off       bool            // the host is off
		restore   bool            // the queue is to be restored before append starts
		isolated  int             // faults that cut the host off
		slow      time.Duration   // by which uploads are delayed
		put       string          // the last object that was put
		partial   int             // uploads of files that follow a manifest without other objects in between
	}
}

// updaterProcess is one incarnation of a command.
type updaterProcess struct {
	files  *disk.Process
	net    *network.Process
	etcd   *etcdlog.Arbiter // nil: the bucket has the commits
	store  *contact.Contact // of the last bucketOf
	ctx    context.Context  //nolint:containedctx // the lifetime of the process
	cancel context.CancelFunc
	killed chan struct{} // closed when it is killed
	once   sync.Once
	live   atomic.Pointer[publish.Live] // nil: append does not publish
}

func newUpdater(w *world, name, ip string) *updater {
	return &updater{w: w, name: name, ip: ip, disk: disk.New(w.chance, name)}
}

func (u *updater) start() *updaterProcess {
	p := &updaterProcess{files: u.disk.Boot(), net: u.w.network.Host(u.ip, "a").Boot(), killed: make(chan struct{})}
	p.ctx, p.cancel = context.WithCancel(u.w.alive)
	return p
}

// kill ends the process at this moment.
func (p *updaterProcess) kill() {
	p.files.Kill()
	p.net.Kill()
	p.once.Do(func() { close(p.killed) })
	p.cancel()
}

// isKilled reports whether the process was killed.
func (p *updaterProcess) isKilled() bool {
	select {
	case <-p.killed:
		return true
	default:
		return false
	}
}

// run starts append again and again until the world ends.
func (u *updater) run() {
	for u.w.alive.Err() == nil {
		u.mu.Lock()
		if u.mu.held > 0 || u.mu.off {
			u.mu.Unlock()
			ctxtime.Sleep(u.w.alive, restartPause)
			continue
		}
		p := u.start()
		u.mu.process, u.mu.read = p, ""
		u.mu.Unlock()
		u.w.log.add(u.name, "append starts")
		ended := make(chan error, 1)
		u.w.running.Go(func() { ended <- u.append(p) })
		select {
		case err := <-ended:
			if u.w.alive.Err() == nil {
				u.w.log.add(u.name, "append ended: %v", err)
				u.heed(err)
			}
			p.kill() // the process has ended
		case <-p.killed: // its goroutines end, and change nothing
		}
		u.mu.Lock()
		u.mu.process = nil
		u.mu.Unlock()
		ctxtime.Sleep(u.w.alive, restartPause)
	}
}

// hold ends append, and keeps it from starting until the result is called.
func (u *updater) hold(kill bool) (release func()) {
	release = countFault(&u.mu.Mutex, &u.mu.held)
	u.stop(kill)
	return release
}

// hasRead reports whether the last record that append has made durable is at a place.
func (u *updater) hasRead(place string) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.mu.read == place
}

// stop ends append, with a signal or at this moment. An append that has made nothing durable is
// not ended: without a cursor the next one would read the newest log only.
func (u *updater) stop(kill bool) {
	u.mu.Lock()
	p, begun := u.mu.process, u.mu.begun
	u.mu.Unlock()
	switch {
	case p == nil, !begun:
	case kill:
		p.kill()
	default:
		p.cancel()
	}
}

// bucketOf returns the bucket as the process sees it.
func (u *updater) bucketOf(p *updaterProcess) (bucket.Bucket, error) {
	view := u.w.store.For(u.name, func() bool { return !p.isKilled() && !u.isIsolated() })
	p.store = contact.New("the object store", u.w.log.logger(u.name))
	b, err := bucket.NewClient(bucket.NewFault(view, u.beforeRequest), bucket.Options{Observe: p.store.Observe})
	if err != nil || u.w.etcd == nil {
		return b, err
	}
	p.etcd, err = etcdlog.Open(u.w.etcdAddress(), &etcdlog.Options{Dial: p.net.Dial})
	return publish.WithArbiter(b, p.etcd), err
}

// beforeRequest is the hook of requests to the store.
func (u *updater) beforeRequest(ctx context.Context, operation, name string) *bucket.Failure {
	if operation != "put" {
		return nil
	}
	u.mu.Lock()
	slow := u.mu.slow
	if strings.HasPrefix(name, "file/") && (strings.HasPrefix(u.mu.put, "manifest/") || strings.HasPrefix(u.mu.put, "commit/")) {
		u.mu.partial++
	}
	u.mu.put = name
	u.mu.Unlock()
	if !ctxtime.Sleep(ctx, slow) {
		return &bucket.Failure{Err: ctx.Err()}
	}
	return nil
}

// partialUploads returns how often files were uploaded after a manifest that lacks them.
func (u *updater) partialUploads() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.mu.partial
}

// slowUploads delays uploads, until the result is called.
func (u *updater) slowUploads(by time.Duration) (end func()) {
	set := func(slow time.Duration) {
		u.mu.Lock()
		defer u.mu.Unlock()
		u.mu.slow = slow
	}
	set(by)
	return func() { set(0) }
}

// close closes the connections of a process that ends.
func (p *updaterProcess) close() error {
	if p.etcd == nil {
		return nil
	}
	return p.etcd.Close()
}

// append is docstore-updater append --follow --resume, with --publish --announce if there is a store.
func (u *updater) append(p *updaterProcess) (err error) {
	w, logger := u.w, u.w.log.logger(u.name)
	parsing := ingest.Parsing{Options: &records.Options{}}
	opener, err := files.NewOpener([]string{logPath}, files.Options{FS: w.app.files, Format: records.FormatNDJSON, Follow: true})
	if err != nil {
		return err
	}
	b, err := u.bucketOf(p)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	if err := u.restored(p, b); err != nil {
		return err
	}
	writer, err := shardset.Open(queueDir, &shardset.Options{
		FS: p.files, Layout: w.layout, Codec: w.config.Codec, SegmentBytes: w.config.SegmentBytes, SegmentAge: w.config.segmentAge(), Logger: logger, Now: u.clock.now,
	})
	if err != nil {
		return err
	}
	var live *publish.Live
	defer func() {
		if live != nil {
			live.Stop()
		}
		err = errors.Join(err, writer.Close())
		if live != nil {
			err = errors.Join(err, live.Finish(p.ctx))
		}
	}()
	to := &ingest.CatchUp{Writer: writer}
	from, err := u.open(p.ctx, to, opener)
	if err != nil {
		return err
	}
	defer func() { _ = from.Close() }() // it was only read
	appender := ingest.NewAppender(from, opener.Ends(), to, ingest.Options{
		Queue: queueDir, Parsing: []ingest.Parsing{parsing}, FlushInterval: time.Second, CanaryInterval: w.config.Canaries,
		SkipInvalid: true, Logger: logger, Now: u.clock.now,
		Flushed: func(at ingest.Progress, _ time.Duration) {
			if at.Invalid > 0 {
				w.account.wrongf("source", "append has read %d records that were not written", at.Invalid)
			}
			u.mu.Lock()
			defer u.mu.Unlock()
			u.mu.read, u.mu.begun = at.Place, true
		},
	})
	if !w.config.Copies {
		live, err = publish.NewLive(p.ctx, b, queueDir, publish.LiveOptions{
			FS: p.files, URL: storeURL, Announce: w.config.Increments, Seal: writer.Seal, Logger: logger, Now: u.clock.now, Problem: p.store.Problem,
			Counts: func() publish.Counts {
				at := appender.Progress()
				return publish.Counts{Documents: at.Documents, Deletes: at.Deletes, Bad: at.Invalid}
			},
		})
		if err != nil {
			return err
		}
		p.live.Store(live)
		live.Start(p.ctx, p.cancel)
	}
	err = appender.Run(p.ctx)
	if errors.Is(err, ingest.ErrInterrupted) {
		return nil
	}
	return err
}

// open opens the log where the queue ends. If append cannot continue there, because the log was
// truncated, the operator starts it with --resume=false, as the error says.
func (u *updater) open(ctx context.Context, to *ingest.CatchUp, opener *files.Opener) (from ingest.Source, err error) {
	u.mu.Lock()
	startOver := u.mu.startOver
	u.mu.startOver = false
	u.mu.Unlock()
	var cursor []byte
	if !startOver {
		cursor, err = to.Resume(opener)
	}
	if err == nil {
		from, err = opener.Open(ctx, cursor)
	}
	if err != nil && strings.Contains(err.Error(), "use --resume=false") {
		if !u.w.app.wasSetBack() && u == u.w.ingest() {
			u.w.account.wrongf("source", "append does not continue in a log that was not truncated: %v", err)
		}
		u.mu.Lock()
		u.mu.startOver = true
		u.mu.Unlock()
	}
	return from, err
}

// announce validates and announces each manifest, as a job that runs every few seconds, if append
// does not.
func (u *updater) announce() {
	p := u.start()
	defer p.kill()
	b, err := u.bucketOf(p)
	u.w.must(err)
	defer func() { u.w.must(p.close()) }()
	for ctxtime.Sleep(u.w.alive, announcePause) {
		log, err := publish.OpenLog(p.ctx, b, u.clock.now)
		if err != nil {
			continue
		}
		_, err = log.Update(p.ctx, announceHead)
		if err != nil && !errors.Is(err, publish.ErrRefused) {
			u.w.log.add(u.name, "announce: %v", err)
		}
	}
}

const announcePause = 3 * time.Second

// command runs another command of the ingest host while append may run.
func (u *updater) command(name string, run func(ctx context.Context, files vfs.FS, b bucket.Bucket) error) error {
	p := u.start()
	defer p.kill()
	b, err := u.bucketOf(p)
	if err == nil {
		err = errors.Join(run(p.ctx, p.files, b), p.close())
	}
	u.w.log.add(u.name, "%s: %v", name, err)
	return err
}

// compact is docstore-updater compact.
func (u *updater) compact(erase bool) {
	u.w.mu.Lock()
	frozen := u.w.mu.frozen
	u.w.mu.compacted, u.w.mu.erased = u.w.mu.compacted || !frozen, u.w.mu.erased || erase
	u.w.mu.Unlock()
	if frozen {
		return
	}
	d := u.w.chance.Next("compact")
	memory, dead := int64(0), []float64{0.05, 0.3}[d.Int(2)]
	if u.w.config.IDs <= fewIDs && d.Bool(0.5) {
		memory = littleMemory
	}
	_ = u.command("compact", func(ctx context.Context, fsys vfs.FS, b bucket.Bucket) error {
		layout, err := shard.Read(fsys, queueDir)
		if err != nil {
			return err
		}
		var states []publish.RetainedState
		if !u.w.config.Copies {
			if states, err = publish.RetainedStates(ctx, b, queueDir, 1, &publish.Options{FS: fsys, Now: u.clock.now}); err != nil {
				return err
			}
		}
		if erase {
			if err := shardset.RemoveDictionary(fsys, queueDir); err != nil {
				return err
			}
		}
		for i := range layout.Shards {
			_, err := maintain.Compact(ctx, layout.Dir(queueDir, i), &maintain.CompactOptions{
				FS: fsys, MaxDead: dead, DeleteOriginals: true, DeleteAfter: deleteAfter, MemoryBytes: memory,
				EraseDead: erase, EraseAfter: eraseAfter, RetainedEnds: publish.RetainedEnds(states, i), Now: u.clock.now,
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
	for _, h := range u.w.servers {
		if h.copier != nil { // a rewrite may be copied before the entries for which it has left out others
			h.excuse()
		}
	}
}

// With littleMemory compact rewrites few segments at a time. For more than fewIDs it would read the queue
// many times.
const (
	littleMemory = 4 << 10
	fewIDs       = 200
)

// eraseAfter is the age of dead documents that are erased.
const eraseAfter = 10 * time.Second

// gc is docstore-updater gc.
func (u *updater) gc() {
	_ = u.command("gc", func(ctx context.Context, _ vfs.FS, b bucket.Bucket) error {
		log, err := publish.OpenLog(ctx, b, u.clock.now)
		if err != nil {
			return err
		}
		_, err = publish.Collect(ctx, b, log, 2, false)
		return err
	})
}
