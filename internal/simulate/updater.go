package simulate

import (
	"context"
	"errors"
	"sync"
	"time"

	"docstore/ingest"
	"docstore/ingest/files"
	"docstore/ingest/records"
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

// updater is the ingest host: append --follow, and the commands that cron starts.
type updater struct {
	w    *world
	disk *disk.Disk

	mu struct {
		sync.Mutex
		process *updaterProcess // nil: none is running
	}
}

// updaterProcess is one incarnation of a command.
type updaterProcess struct {
	files  *disk.Process
	net    *network.Process
	etcd   *etcdlog.Arbiter // nil: the bucket has the commits
	ctx    context.Context  //nolint:containedctx // the lifetime of the process
	cancel context.CancelFunc
	killed chan struct{} // closed when it is killed
	once   sync.Once
}

func newUpdater(w *world) *updater { return &updater{w: w, disk: disk.New(w.chance, "ingest")} }

func (u *updater) start() *updaterProcess {
	p := &updaterProcess{files: u.disk.Boot(), net: u.w.network.Host(ingestIP, "a").Boot(), killed: make(chan struct{})}
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
		p := u.start()
		u.mu.Lock()
		u.mu.process = p
		u.mu.Unlock()
		u.w.log.add("updater", "append starts")
		ended := make(chan error, 1)
		u.w.running.Go(func() { ended <- u.append(p) })
		select {
		case err := <-ended:
			if u.w.alive.Err() == nil {
				u.w.log.add("updater", "append ended: %v", err)
			}
			p.kill() // the process has ended
		case <-p.killed: // its goroutines end, and change nothing
		}
		u.mu.Lock()
		u.mu.process = nil
		u.mu.Unlock()
		if !ctxtime.Sleep(u.w.alive, restartPause) {
			return
		}
	}
}

// stop ends append, with a signal or at this moment.
func (u *updater) stop(kill bool) {
	u.mu.Lock()
	p := u.mu.process
	u.mu.Unlock()
	switch {
	case p == nil:
	case kill:
		p.kill()
	default:
		p.cancel()
	}
}

// bucketOf returns the bucket as the process sees it.
func (u *updater) bucketOf(p *updaterProcess) (bucket.Bucket, error) {
	b, err := bucket.NewClient(u.w.store.For("ingest", func() bool { return !p.isKilled() }), bucket.Options{})
	if err != nil || u.w.etcd == nil {
		return b, err
	}
	p.etcd, err = etcdlog.Open(u.w.etcdAddress(), &etcdlog.Options{Dial: p.net.Dial})
	return publish.WithArbiter(b, p.etcd), err
}

// close closes the connections of a process that ends.
func (p *updaterProcess) close() error {
	if p.etcd == nil {
		return nil
	}
	return p.etcd.Close()
}

// ingestIP is the address of the ingest host.
const ingestIP = "10.0.4.1"

// append is docstore-updater append --follow --resume, with --publish --announce if there is a store.
func (u *updater) append(p *updaterProcess) (err error) {
	w, logger := u.w, u.w.log.logger("updater")
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
	writer, err := shardset.Open(queueDir, &shardset.Options{
		FS: p.files, Layout: w.layout, Codec: w.config.Codec, SegmentBytes: w.config.SegmentBytes, SegmentAge: w.config.segmentAge(), Logger: logger,
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
	cursor, err := to.Resume(opener)
	if err != nil {
		return err
	}
	from, err := opener.Open(p.ctx, cursor)
	if err != nil {
		return err
	}
	defer func() { _ = from.Close() }() // it was only read
	appender := ingest.NewAppender(from, opener.Ends(), to, ingest.Options{
		Queue: queueDir, Parsing: []ingest.Parsing{parsing}, FlushInterval: time.Second, Logger: logger,
	})
	if !w.config.Copies {
		live, err = publish.NewLive(p.ctx, b, queueDir, publish.LiveOptions{
			FS: p.files, URL: storeURL, Announce: w.config.Increments, Seal: writer.Seal, Logger: logger, Now: time.Now,
			Counts: func() publish.Counts {
				at := appender.Progress()
				return publish.Counts{Documents: at.Documents, Deletes: at.Deletes, Bad: at.Invalid}
			},
		})
		if err != nil {
			return err
		}
		live.Start(p.ctx)
	}
	err = appender.Run(p.ctx)
	if errors.Is(err, ingest.ErrInterrupted) {
		return nil
	}
	return err
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
		log, err := publish.OpenLog(p.ctx, b, time.Now)
		if err != nil {
			continue
		}
		_, err = log.Update(p.ctx, func(r publish.Record) (publish.Record, error) {
			if r.Head.Number == r.Announced.Number {
				return r, nil
			}
			validated, err := r.Validate(r.Head)
			if err != nil {
				return r, err
			}
			return validated.Announce(r.Head)
		})
		if err != nil && !errors.Is(err, publish.ErrRefused) {
			u.w.log.add("updater", "announce: %v", err)
		}
	}
}

const announcePause = 3 * time.Second

// command runs another command of the ingest host while append may run.
func (u *updater) command(name string, run func(ctx context.Context, files vfs.FS, b bucket.Bucket) error) {
	p := u.start()
	defer p.kill()
	b, err := u.bucketOf(p)
	if err == nil {
		err = errors.Join(run(p.ctx, p.files, b), p.close())
	}
	u.w.log.add("updater", "%s: %v", name, err)
}

// compact is docstore-updater compact.
func (u *updater) compact(erase bool) {
	u.w.mu.Lock()
	u.w.mu.compacted = true
	u.w.mu.Unlock()
	u.command("compact", func(ctx context.Context, fsys vfs.FS, b bucket.Bucket) error {
		layout, err := shard.Read(fsys, queueDir)
		if err != nil {
			return err
		}
		var states []publish.RetainedState
		if !u.w.config.Copies {
			if states, err = publish.RetainedStates(ctx, b, queueDir, 1, &publish.Options{FS: fsys}); err != nil {
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
				FS: fsys, MaxDead: 0.3, DeleteOriginals: true, DeleteAfter: deleteAfter,
				EraseDead: erase, EraseAfter: eraseAfter, RetainedEnds: publish.RetainedEnds(states, i),
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// eraseAfter is the age of dead documents that are erased.
const eraseAfter = 10 * time.Second

// gc is docstore-updater gc.
func (u *updater) gc() {
	u.command("gc", func(ctx context.Context, _ vfs.FS, b bucket.Bucket) error {
		log, err := publish.OpenLog(ctx, b, time.Now)
		if err != nil {
			return err
		}
		_, err = publish.Collect(ctx, b, log, 2, false)
		return err
	})
}
