package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/docservice"
)

// history is what was appended, in order, and by id.
type history struct {
	lines    []document          // not yet appended
	versions map[string][][]byte // nil: a delete
	ids      []string
}

func (h *history) note(id string, line []byte) {
	if h.versions[id] == nil {
		h.ids = append(h.ids, id)
	}
	h.versions[id] = append(h.versions[id], line)
}

// put appends the next version of a document.
func (h *history) put(d document) {
	line := fmt.Appendf(nil, `{"version":%d,`, len(h.versions[d.id])+1)
	line = append(line, d.line[1:]...)
	h.note(d.id, line)
	h.lines = append(h.lines, document{id: d.id, line: line})
}

func (h *history) delete(d document) {
	h.note(d.id, nil)
	h.lines = append(h.lines, document{id: d.id, line: fmt.Appendf(nil, `{"id":%q,"_delete":true}`, d.id)})
}

// take returns what is to be appended.
func (h *history) take() []document {
	lines := h.lines
	h.lines = nil
	return lines
}

// now is what each id should answer in the end.
func (h *history) now() map[string][]byte {
	want := make(map[string][]byte, len(h.ids))
	for id, versions := range h.versions {
		want[id] = versions[len(versions)-1]
	}
	return want
}

// observe asks a daemon for random documents all the time. Of each it may see the
// versions in their order and leave some out, but it must never see another thing, nor
// an earlier version again.
func (h *history) observe(t *testing.T, d *daemon) (stop func()) {
	t.Helper()
	client := newClient(t, d)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	wrong, asked := "", 0
	running.Go(func() {
		seen := make(map[string]int) // versions that were seen or left out
		for ; ctx.Err() == nil && wrong == ""; asked++ {
			id := h.ids[rand.IntN(len(h.ids))]
			got, err := client.Get(ctx, nil, id)
			switch {
			case errors.Is(err, docservice.ErrNotFound) && seen[id] == 0: // not written as yet, or deleted
			case err == nil || errors.Is(err, docservice.ErrNotFound):
				n := max(0, seen[id]-1)
				for ; n < len(h.versions[id]); n++ {
					if v := h.versions[id][n]; (v == nil) == (err != nil) && bytes.Equal(v, got) {
						break
					}
				}
				if n == len(h.versions[id]) {
					wrong = fmt.Sprintf("%s: %.100q, %v, behind version %d of %d", id, got, err, seen[id], n)
				}
				seen[id] = n + 1
			case ctx.Err() == nil && !errors.Is(err, docservice.ErrUnavailable):
				wrong = fmt.Sprintf("%s: %v", id, err)
			}
			time.Sleep(time.Millisecond) // the others want the processor, too
		}
	})
	t.Cleanup(func() { cancel(); running.Wait() })
	return func() {
		t.Helper()
		cancel()
		running.Wait()
		require.Empty(t, wrong)
		require.Positive(t, asked)
	}
}

// position is the segment that a daemon's index stands in.
func (d *daemon) position(t *testing.T) (segment int) {
	t.Helper()
	d.poll(t, "/readyz", func(_ int, body []byte) bool {
		var answer struct {
			Collections map[string]struct{ Position string }
		}
		require.NoError(t, json.Unmarshal(body, &answer))
		_, err := fmt.Sscanf(answer.Collections[collection].Position, "%d/", &segment)
		require.NoError(t, err)
		return true
	})
	return segment
}

// compactRig is a queue with daemons that have followed it to different places.
type compactRig struct {
	history
	source   string
	replicas []*replica
	daemons  []*daemon
}

func (r *compactRig) args(more ...string) []string {
	return append([]string{"append", "--queue", r.source, "--codec", "none", "--segment-size", "1MiB", "--flush-interval", "20ms"}, more...)
}

// append appends what waits and waits for the daemons to have it.
func (r *compactRig) append(t *testing.T, daemons ...*daemon) {
	t.Helper()
	lines := r.take()
	start(t, bytes.NewReader(ndjson(lines)), "docstore-updater", r.args()...).wait(t)
	last := lines[len(lines)-1]
	for _, d := range daemons {
		d.waitDocument(t, last.id, last.line)
	}
}

func (r *compactRig) compact(t *testing.T) (output string) {
	t.Helper()
	p := start(t, nil, "docstore-updater", "compact", "--queue", r.source, "--max-dead", "0.3", "--delete-after", "0s")
	p.wait(t)
	return p.output.String()
}

// TestCompactionUnderUse rewrites a run of segments, and removes what was rewritten,
// while the updater writes and three daemons serve copies of the queue: one that has
// not come to the run as yet, one in the midst of it, and one behind it.
func TestCompactionUnderUse(t *testing.T) {
	t.Parallel()
	documents := corpus(t)[:3_000]
	stable, changing := documents[:1_000], documents[1_000:]
	r := &compactRig{source: t.TempDir(), history: history{versions: map[string][][]byte{}}}
	for range 3 {
		copied := startReplica(t, r.source, "--delete")
		r.replicas = append(r.replicas, copied)
		r.daemons = append(r.daemons, startDaemon(t, copied.target, t.TempDir()))
	}
	before, inside, behind := r.daemons[0], r.daemons[1], r.daemons[2]

	for _, d := range stable {
		r.put(d)
	}
	r.append(t, before, inside, behind)
	r.replicas[0].stop()
	for _, d := range changing {
		r.put(d)
	}
	r.append(t, inside, behind)
	r.replicas[1].stop()
	for i, d := range changing {
		switch {
		case i%10 == 0:
			r.delete(d)
		case i%2 == 0:
			r.put(d)
		}
	}
	r.put(changing[0]) // a document is the last line, to be waited for
	r.append(t, behind)
	for i, d := range changing {
		if i%10 != 0 && i%7 != 0 {
			r.put(d)
		}
	}
	r.put(changing[0])
	r.append(t, behind)

	// What is going to be written is known to the observers beforehand.
	for i, d := range changing {
		switch i % 5 {
		case 1:
			r.put(d)
		case 2:
			r.delete(d)
		}
	}
	last := document{id: "last", line: []byte(`{"id":"last"}`)}
	r.put(last)
	lines := r.take()
	var observers []func()
	for _, d := range r.daemons {
		observers = append(observers, r.observe(t, d))
	}
	feed, input := io.Pipe()
	updater := start(t, feed, "docstore-updater", r.args()...)
	written := make(chan error)
	go func() {
		var err error
		for len(lines) > 0 && err == nil {
			n := min(20, len(lines))
			_, err = input.Write(ndjson(lines[:n]))
			lines = lines[n:]
			time.Sleep(10 * time.Millisecond) // so that it goes on while the queue is compacted
		}
		written <- errors.Join(err, input.Close())
	}()
	output := r.compact(t)
	require.Contains(t, output, "rewritten into 1:")
	first, end := r.rewrite(t)
	require.Less(t, before.position(t), first)
	require.LessOrEqual(t, first, inside.position(t))
	require.Less(t, inside.position(t), end)
	require.Less(t, end, behind.position(t))
	for _, removed := range []int{first, end} {
		require.NoFileExists(t, filepath.Join(r.source, fmt.Sprintf("%010d.seg", removed)))
	}
	for more := true; more; {
		select {
		case err := <-written:
			require.NoError(t, err)
			more = false
		default:
			r.compact(t)
		}
	}
	updater.wait(t)

	// Those that have stayed behind find the rewrites only.
	for i := range 2 {
		r.replicas[i] = resumeReplica(t, r.source, r.replicas[i].target, "--delete")
	}
	r.verify(t)
	r.compact(t) // of what was written last, and of rewrites
	r.waitCopied(t)
	r.verify(t)
	for _, stop := range observers {
		stop()
	}
	for _, d := range r.daemons {
		d.stop(t)
		d.restart(t)
	}
	r.verify(t)
	for _, d := range r.daemons {
		d.poll(t, "/readyz", func(status int, body []byte) bool {
			require.Equal(t, http.StatusOK, status)
			require.NotContains(t, string(body), "damaged")
			return true
		})
		d.stop(t)
	}
}

// rewrite returns the segments that the one rewrite stands for.
func (r *compactRig) rewrite(t *testing.T) (first, last int) {
	t.Helper()
	rewrites, err := filepath.Glob(filepath.Join(r.source, "*-*.seg"))
	require.NoError(t, err)
	require.Len(t, rewrites, 1)
	_, err = fmt.Sscanf(strings.TrimSuffix(filepath.Base(rewrites[0]), ".0001.seg"), "%d-%d", &first, &last)
	require.NoError(t, err)
	return first, last
}

// verify waits until each daemon has followed to the end, and asks it for everything.
func (r *compactRig) verify(t *testing.T) {
	t.Helper()
	want := r.now()
	for _, d := range r.daemons {
		d.waitDocument(t, "last", want["last"])
		d.waitReady(t)
		compareAll(t, newClient(t, d), want)
	}
}

// waitCopied waits until the copies have the files of the source and no others.
func (r *compactRig) waitCopied(t *testing.T) {
	t.Helper()
	names := func(dir string) (names []string) {
		for _, path := range segments(t, dir) {
			names = append(names, filepath.Base(path))
		}
		return names
	}
	for _, copied := range r.replicas {
		for fmt.Sprint(names(copied.target)) != fmt.Sprint(names(r.source)) {
			time.Sleep(pollInterval)
		}
	}
}
