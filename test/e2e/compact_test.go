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
	"docstore/internal/testprocess"
)

// history is the sequence of appended documents, in order and by id.
type history struct {
	lines    []document          // not yet appended
	versions map[string][][]byte // nil: deleted
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

// take returns the documents to append next.
func (h *history) take() []document {
	lines := h.lines
	h.lines = nil
	return lines
}

// now returns the final version of each id.
func (h *history) now() map[string][]byte {
	want := make(map[string][]byte, len(h.ids))
	for id, versions := range h.versions {
		want[id] = versions[len(versions)-1]
	}
	return want
}

// observe fetches random documents from a daemon until the test ends. The versions of a
// document must appear in order; some may be skipped. Any other answer fails the test.
func (h *history) observe(t *testing.T, d *daemon) (stop func()) {
	t.Helper()
	client := newClient(t, d)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	wrong, asked := "", 0
	running.Go(func() {
		seen := make(map[string]int) // versions seen or skipped
		for ; ctx.Err() == nil && wrong == ""; asked++ {
			id := h.ids[rand.IntN(len(h.ids))]
			got, err := client.Get(ctx, nil, id)
			switch {
			case errors.Is(err, docservice.ErrNotFound) && seen[id] == 0: // not written yet, or deleted
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
			time.Sleep(time.Millisecond) // yield the CPU
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

// position returns the segment that a daemon has indexed up to.
func (d *daemon) position(t *testing.T) (segment int) {
	t.Helper()
	d.poll(t, "/readyz", func(_ int, body []byte) bool {
		var answer struct {
			Collections map[string]struct{ Position string }
		}
		require.NoError(t, json.Unmarshal(body, &answer))
		_, err := fmt.Sscanf(answer.Collections[collectionName].Position, "%d/", &segment)
		require.NoError(t, err)
		return true
	})
	return segment
}

// compactRig is a queue and daemons that have indexed it up to different positions.
type compactRig struct {
	history
	source   string
	replicas []*replica
	daemons  []*daemon
}

func (r *compactRig) args(more ...string) []string {
	return append([]string{"append", "--queue", r.source, "--codec", "none", "--segment-size", "1MiB", "--flush-interval", "20ms"}, more...)
}

// append appends the pending documents and waits until the daemons have indexed them.
func (r *compactRig) append(t *testing.T, daemons ...*daemon) {
	t.Helper()
	lines := r.take()
	start(t, bytes.NewReader(ndjson(lines)), "docstore-updater", r.args()...).WaitExit(t)
	last := lines[len(lines)-1]
	for _, d := range daemons {
		d.waitDocument(t, last.id, last.line)
	}
}

func (r *compactRig) compact(t *testing.T) (output string) {
	t.Helper()
	p := start(t, nil, "docstore-updater", "compact", "--queue", r.source, "--max-dead", "0.3", "--delete-after", "0s")
	p.WaitExit(t)
	return p.Output.String()
}

// TestCompactionUnderUse compacts a range of segments, and deletes the originals, while the
// updater writes and three daemons serve copies of the queue: one is positioned before the
// range, one inside it, and one after it.
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
	r.put(changing[0]) // the last line is a document, so the test can wait for it
	r.append(t, behind)
	for i, d := range changing {
		if i%10 != 0 && i%7 != 0 {
			r.put(d)
		}
	}
	r.put(changing[0])
	r.append(t, behind)

	// Observers know the versions before they are written.
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
			time.Sleep(10 * time.Millisecond) // spread the writes over the compaction
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
	updater.WaitExit(t)

	// The daemons that lag behind find only the rewrites.
	for i := range 2 {
		r.replicas[i] = resumeReplica(t, r.source, r.replicas[i].target, "--delete")
	}
	r.verify(t)
	r.compact(t) // of the newest segments and of rewrites
	r.waitCopied(t)
	r.verify(t)
	for _, stop := range observers {
		stop()
	}
	for _, d := range r.daemons {
		d.Stop(t)
		d.restart(t)
	}
	r.verify(t)
	for _, d := range r.daemons {
		d.poll(t, "/readyz", func(status int, body []byte) bool {
			require.Equal(t, http.StatusOK, status)
			require.NotContains(t, string(body), "damaged")
			return true
		})
		d.Stop(t)
	}
}

// rewrite returns the range of segments that the only rewrite replaces.
func (r *compactRig) rewrite(t *testing.T) (first, last int) {
	t.Helper()
	rewrites, err := filepath.Glob(filepath.Join(r.source, "*-*.seg"))
	require.NoError(t, err)
	require.Len(t, rewrites, 1)
	_, err = fmt.Sscanf(strings.TrimSuffix(filepath.Base(rewrites[0]), ".0001.seg"), "%d-%d", &first, &last)
	require.NoError(t, err)
	return first, last
}

// verify waits until each daemon has indexed the whole queue and compares all documents.
func (r *compactRig) verify(t *testing.T) {
	t.Helper()
	want := r.now()
	for _, d := range r.daemons {
		d.waitDocument(t, "last", want["last"])
		d.waitReady(t)
		compareAll(t, newClient(t, d), want)
	}
}

// waitCopied waits until the copies have exactly the files of the source.
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
			time.Sleep(testprocess.PollInterval)
		}
	}
}
