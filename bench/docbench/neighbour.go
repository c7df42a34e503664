package main

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"docstore/bench/internal/files"
	"docstore/bench/internal/process"
)

// Background tasks during the reads.
const (
	besideNothing  = "nothing"
	besideUpdater  = "updater"  // the updater appends to the daemon's queue at full speed
	besideArrivals = "arrivals" // sealed segments arrive as with rsync
)

var besides = []string{besideNothing, besideUpdater, besideArrivals}

// A neighbour is a running background task.
type neighbour struct {
	processes []*process.Process
	// stop ends the task and returns its figures.
	stop func() (figures, error)
}

// startNeighbour starts the background task.
func (s *docstoreStore) startNeighbour(ctx context.Context, what string, set *settings) (n neighbour, err error) {
	if what == besideUpdater {
		return s.besideUpdater()
	}
	if s.arrivals == nil {
		if s.arrivals, err = s.prepareArrivals(ctx, set); err != nil {
			return n, err
		}
	}
	done, ended := make(chan struct{}), make(chan error, 1)
	started, before := time.Now(), len(s.arrivals.segments)
	go func() { ended <- s.arrivals.run(done) }()
	return neighbour{stop: func() (figures, error) {
		close(done)
		err := <-ended
		return figures{"segments/s": float64(before-len(s.arrivals.segments)) / time.Since(started).Seconds()}, err
	}}, nil
}

// updaterDocuments is the number of documents that the updater appends repeatedly.
const updaterDocuments = 100_000

// besideUpdater starts the updater at full speed.
func (s *docstoreStore) besideUpdater() (n neighbour, err error) {
	name := filepath.Join(s.dir, "updates.ndjson")
	if _, err := os.Stat(name); errors.Is(err, fs.ErrNotExist) {
		file, err := os.Create(name)
		if err != nil {
			return n, err
		}
		if err := writeLines(file, s.corpus, min(s.corpus.size(), updaterDocuments)); err != nil { // which closes it
			return n, err
		}
	}
	updater, err := s.rig.command("docstore-updater")
	if err != nil {
		return n, err
	}
	file, err := os.Open(name)
	if err != nil {
		return n, err
	}
	cmd := exec.Command(updater, "append", "--queue", s.queue(), "--codec", s.codec, "--quiet")
	input, err := cmd.StdinPipe()
	if err != nil {
		return n, errors.Join(err, file.Close())
	}
	// Not in the control group of the servers: in production the updater runs on a separate machine.
	p, err := process.Start("docstore-updater", cmd)
	if err != nil {
		return n, errors.Join(err, file.Close())
	}
	ended := make(chan error, 1)
	go func() { ended <- errors.Join(feed(input, file), file.Close()) }()
	n.processes = []*process.Process{p}
	n.stop = func() (figures, error) {
		f := figures{"updater cpu": process.CPUSeconds(n.processes)}
		return f, errors.Join(p.Stop(), <-ended)
	}
	return n, nil
}

// feed writes a file to a process repeatedly until it ends.
func feed(to io.Writer, file *os.File) error {
	for {
		_, err := io.Copy(to, file)
		if errors.Is(err, syscall.EPIPE) || errors.Is(err, os.ErrClosed) {
			return nil
		}
		if err == nil {
			_, err = file.Seek(0, io.SeekStart)
		}
		if err != nil {
			return err
		}
	}
}

// arrivals are the sealed segments to deliver to the daemon's queue.
type arrivals struct {
	from, to string
	segments []string      // names, in order
	interval time.Duration // from one to the next
}

// arrivalBytes is the size of an arriving segment: small, so that many arrive during a measurement. The
// daemon's cost per document does not depend on it.
const arrivalBytes = 1 << 20

// prepareArrivals appends the segments of all measurements to a copy of the daemon's queue.
func (s *docstoreStore) prepareArrivals(ctx context.Context, set *settings) (*arrivals, error) {
	a := &arrivals{from: filepath.Join(s.dir, "source"), to: s.queue()}
	if err := os.Mkdir(a.from, 0o755); err != nil {
		return nil, err
	}
	have, err := segmentsIn(a.to)
	if err != nil {
		return nil, err
	}
	for _, name := range have { // sealed segments never change: link them
		if err := os.Link(filepath.Join(a.to, name), filepath.Join(a.from, name)); err != nil {
			return nil, err
		}
	}
	rows := len(set.callers) * len(set.batches) * len(set.distributions)
	count := int(set.arrivalRate * set.duration.Seconds() * float64(set.rounds*rows) * spareArrivals)
	if err := s.appendTo(ctx, a.from, count, "--segment-size", strconv.Itoa(arrivalBytes)); err != nil {
		return nil, err
	}
	all, err := segmentsIn(a.from)
	if err != nil {
		return nil, err
	}
	a.segments = slices.DeleteFunc(all, func(name string) bool { return slices.Contains(have, name) })
	if len(a.segments) == 0 {
		return nil, errors.New("there is no segment to deliver")
	}
	each := float64(count) / float64(len(a.segments))
	a.interval = time.Duration(each / set.arrivalRate * float64(time.Second))
	return a, nil
}

// spareArrivals multiplies the segments that the measurements need.
const spareArrivals = 1.5

// segmentsIn lists the sealed segments of a queue, in order.
func segmentsIn(dir string) (names []string, err error) {
	entries, err := os.ReadDir(dir)
	for _, entry := range entries {
		if strings.HasSuffix(entry.Name(), ".seg") {
			names = append(names, entry.Name())
		}
	}
	return names, err
}

// run delivers segments until it is stopped.
func (a *arrivals) run(done <-chan struct{}) error {
	ticker := time.NewTicker(a.interval)
	defer ticker.Stop()
	for {
		select {
		case <-done:
			return nil
		case <-ticker.C:
		}
		if len(a.segments) == 0 {
			return errors.New("all segments were delivered before the measurements ended")
		}
		if err := a.bring(a.segments[0]); err != nil {
			return err
		}
		a.segments = a.segments[1:]
	}
}

// bring copies a segment as rsync does, under a temporary name.
func (a *arrivals) bring(name string) error {
	content, err := os.ReadFile(filepath.Join(a.from, name))
	if err != nil {
		return err
	}
	half := filepath.Join(a.to, "."+name+".coming")
	if err := os.WriteFile(half, content, 0o644); err != nil {
		return err
	}
	return os.Rename(half, filepath.Join(a.to, name))
}

// measureBeside measures reads during a background task.
func (s *settings) measureBeside(ctx context.Context, l *load, c *contestant, what string) (figures, error) {
	if what == besideNothing {
		return l.measure(c.client, c.store.processes())
	}
	host := c.store.(*docstoreStore) // see besidesOf
	bytesBefore, err := files.Bytes(host.queue(), "")
	if err != nil {
		return nil, err
	}
	n, err := host.startNeighbour(ctx, what, s)
	if err != nil {
		return nil, err
	}
	serving := c.store.processes()
	started, cpu := time.Now(), process.CPUSeconds(serving)
	f, err := l.measure(c.client, append(slices.Clone(serving), n.processes...))
	elapsed, cpuAfter := time.Since(started).Seconds(), process.CPUSeconds(serving)
	told, stopErr := n.stop()
	bytesAfter, bytesErr := files.Bytes(host.queue(), "")
	if err := errors.Join(err, stopErr, bytesErr); err != nil {
		return nil, err
	}
	f["server us"] = (cpuAfter - cpu) * 1e6 / (f["documents/s"] * elapsed)
	f["server cpu"] = (cpuAfter - cpu) / elapsed
	f["queue bytes/s"] = float64(bytesAfter-bytesBefore) / elapsed
	for name, figure := range told {
		if f[name] = figure; name == "updater cpu" {
			f[name] /= elapsed
		}
	}
	return f, nil
}
