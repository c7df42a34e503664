//go:build linux

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/docservice"
	"docstore/docservice/sharded/etcdclient"
	"docstore/internal/crashtest"
	"docstore/internal/ctxtime"
	"docstore/internal/testprocess"
	"docstore/internal/testseed"
)

const (
	// shortRun is the duration of each part of the run in continuous integration, which
	// usually has one step.
	shortRun = time.Second
	// longRunRows is the number of rows of each column.
	longRunRows = 2
	// statePause is the maximum pause between two states of the collection.
	statePause = 5 * time.Second
	// shrinkEvery is the number of states after which the queue is compacted and old manifests
	// are deleted, so that the disk use is bounded.
	shrinkEvery = 10
	// keptManifests is the number of manifests that gc keeps.
	keptManifests = "5"
	// publishPatience is the time in which a state must be announced, longer than any outage.
	publishPatience = 5 * time.Minute
	// retryUpdater is the pause after a failed command of the updater.
	retryUpdater = 500 * time.Millisecond
	// One of killsUpdaterOf commands of the updater is killed.
	killsUpdaterOf = 8
	// maxUpdaterLife is the maximum time after which such a command is killed.
	maxUpdaterLife = 300 * time.Millisecond
	// longRunFile has the state of a run, in its directory.
	longRunFile = "run.json"
)

// TestLongRun runs a whole cluster in processes under random faults, while documents change,
// and accounts for each call and each document. make soak runs it for hours: see
// crashtest.DurationVariable.
func TestLongRun(t *testing.T) {
	if duration, dir := crashtest.Duration(t); duration > 0 {
		longRunFor(t, dir, duration)
		return
	}
	dir := t.TempDir()
	t.Run("first part", func(t *testing.T) { longRunFor(t, dir, shortRun) })
	t.Run("continued", func(t *testing.T) { longRunFor(t, dir, 2*shortRun) })
}

// longRunState is the content of longRunFile.
type longRunState struct {
	Seed    uint64           `json:"seed"`
	Begun   bool             `json:"begun"` // state 0 of the collection is announced
	State   int              `json:"state"` // of the collection: the last one that was begun
	Elapsed time.Duration    `json:"elapsed_ns"`
	Steps   int              `json:"steps"`
	Calls   map[string]int64 `json:"calls"`
	Faults  map[string]int64 `json:"faults"`
	Updater map[string]int64 `json:"updater"` // commands, by outcome
}

// longRun is a run, or a part of one that is continued.
type longRun struct {
	t        *testing.T
	dir      string
	f        *columnFleet
	c        *canary
	model    *model
	account  *account
	random   *rand.Rand // of the faults
	duration time.Duration
	before   time.Duration // of the earlier parts
	started  time.Time     // of the calls of this part

	mu struct {
		sync.Mutex
		state     longRunState // without Calls and Elapsed, which save adds
		announced int          // state of the collection
		manifest  uint64       // its number
	}
}

// longRunFor runs until all parts of the run together have taken so long, and then requires
// that each document is in its last version.
func longRunFor(t *testing.T, dir string, duration time.Duration) {
	r := openLongRun(t, dir, duration)
	r.converge()
	r.started = time.Now()
	r.c = r.f.startCanary(r.account, r.model, nil)
	ctx, cancel := context.WithCancel(t.Context())
	var background sync.WaitGroup
	background.Go(func() { r.changeDocuments(ctx) })
	background.Go(func() { r.sampleRegularly(ctx) })
	stop := func() {
		cancel()
		background.Wait()
	}
	t.Cleanup(stop)
	for begun := false; !begun || r.elapsed() < duration; begun = true {
		r.step()
	}
	stop()
	require.NoError(t, r.sample())
	r.finishState()
	r.converge()
	r.c.stop()
	requireLatest(r.f, r.model)
	for _, d := range r.f.daemons() {
		d.Stop(t)
	}
	t.Logf("%s, %d states of the collection, %d steps; faults: %s; updater: %s", r.elapsed().Round(time.Second), r.mu.announced, r.mu.state.Steps,
		listCounts(r.mu.state.Faults), listCounts(r.mu.state.Updater))
}

// openLongRun starts or continues the run of a directory.
func openLongRun(t *testing.T, dir string, duration time.Duration) *longRun {
	t.Helper()
	r := &longRun{t: t, dir: dir, duration: duration, account: newAccount()}
	content, err := os.ReadFile(filepath.Join(dir, longRunFile))
	if err == nil {
		require.NoError(t, json.Unmarshal(content, &r.mu.state))
		endProcesses(t, dir)
	} else {
		require.ErrorIs(t, err, fs.ErrNotExist)
	}
	if !r.mu.state.Begun {
		r.begin()
	}
	r.before = r.mu.state.Elapsed
	r.account.add(r.mu.state.Calls)
	r.random = rand.New(rand.NewPCG(r.mu.state.Seed, uint64(r.mu.state.Steps)))
	r.model = newModel(r.mu.state.Seed)
	for range r.mu.state.State {
		r.model.next()
	}
	r.f = newColumnFleet(t, dir, longRunRows, r.model.first(), r.mu.state.Begun)
	r.mu.state.Begun = true
	r.finishState()
	return r
}

// begin prepares the directory for a run. It may have files of one that was interrupted before
// it began.
func (r *longRun) begin() {
	r.t.Helper()
	entries, err := os.ReadDir(r.dir)
	require.NoError(r.t, err)
	if r.mu.state.Seed == 0 {
		require.Empty(r.t, entries, "%s has other files than those of a run; give another directory", r.dir)
	}
	for _, e := range entries {
		require.NoError(r.t, os.RemoveAll(filepath.Join(r.dir, e.Name())))
	}
	r.mu.state = longRunState{Seed: testseed.Seed(r.t), Faults: map[string]int64{}, Updater: map[string]int64{}}
	require.NoError(r.t, r.save())
}

// finishState announces the last state, which may have been interrupted: its changes are in
// the queue in part or all. Appended again they lead to the same documents.
func (r *longRun) finishState() {
	r.t.Helper()
	state, changed := r.model.last()
	require.NoError(r.t, r.append(r.t.Context(), changed))
	require.NoError(r.t, r.announce(r.t.Context(), state))
	require.NoError(r.t, r.save())
}

// elapsed returns the duration of all parts of the run.
func (r *longRun) elapsed() time.Duration {
	if r.started.IsZero() {
		return r.before
	}
	return r.before + time.Since(r.started)
}

// tally counts an event in a map of the state.
func (r *longRun) tally(counts func(*longRunState) map[string]int64, name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	counts(&r.mu.state)[name]++
}

func faultsOf(s *longRunState) map[string]int64  { return s.Faults }
func updaterOf(s *longRunState) map[string]int64 { return s.Updater }

// save writes the state of the run, so that it can be continued from here.
func (r *longRun) save() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.mu.state
	s.Elapsed, s.Calls = r.elapsed(), r.account.calls()
	content, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	path := filepath.Join(r.dir, longRunFile)
	if err := os.WriteFile(path+".new", content, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// changeDocuments makes states of the collection until ctx ends.
func (r *longRun) changeDocuments(ctx context.Context) {
	for ctxtime.Sleep(ctx, rand.N(statePause)) {
		state, changed := r.model.next()
		r.mu.Lock()
		r.mu.state.State = state
		r.mu.Unlock()
		err := r.save()
		if err == nil {
			err = r.append(ctx, changed)
		}
		if err == nil {
			err = r.announce(ctx, state)
		}
		if err == nil && state%shrinkEvery == 0 {
			err = r.shrink(ctx)
		}
		if err != nil {
			if ctx.Err() == nil {
				r.account.violated(fmt.Errorf("state %d: %w", state, err))
			}
			return
		}
	}
}

// append appends and publishes changes.
func (r *longRun) append(ctx context.Context, changed []document) error {
	_, err := r.updater(ctx, ndjson(changed), append([]string{"append", "--queue", r.queue(), "--publish", columnURL, "--quiet"}, r.f.flags...)...)
	return err
}

// announce validates and announces the published manifest.
func (r *longRun) announce(ctx context.Context, state int) error {
	flags := append([]string{"--bucket", columnURL}, r.f.flags...)
	if _, err := r.updater(ctx, nil, append([]string{"validate", "--quiet"}, flags...)...); err != nil {
		return err
	}
	r.model.announcing(state)
	output, err := r.updater(ctx, nil, append([]string{"announce"}, flags...)...)
	if err != nil {
		return err
	}
	var manifest uint64
	if _, err := fmt.Sscanf(output, "announced: %d;", &manifest); err != nil {
		return fmt.Errorf("announce wrote %q: %w", output, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.announced, r.mu.manifest = state, manifest
	return nil
}

// shrink compacts the queue and deletes old manifests.
func (r *longRun) shrink(ctx context.Context) error {
	if _, err := r.updater(ctx, nil, append([]string{"compact", "--queue", r.queue(), "--bucket", columnURL, "--delete-after", "0s", "--quiet"}, r.f.s3.flags...)...); err != nil {
		return err
	}
	_, err := r.updater(ctx, nil, append([]string{"gc", "--bucket", columnURL, "--keep", keptManifests}, r.f.flags...)...)
	return err
}

func (r *longRun) queue() string { return filepath.Join(r.dir, "queue") }

// updater runs a command again until it succeeds, and returns its output. Some commands are
// killed.
func (r *longRun) updater(ctx context.Context, input []byte, args ...string) (string, error) {
	for begun := time.Now(); ; {
		if rand.IntN(killsUpdaterOf) == 0 {
			r.killUpdater(ctx, input, args...)
		}
		output, err := r.command(ctx, input, args...)
		if err == nil {
			r.tally(updaterOf, args[0]+" succeeded")
			return output, nil
		}
		if ctx.Err() != nil {
			return "", ctx.Err()
		}
		r.tally(updaterOf, args[0]+" failed")
		if time.Since(begun) > publishPatience {
			return "", fmt.Errorf("docstore-updater %s: %w: %s", strings.Join(args, " "), err, testprocess.Tail(output, 2<<10))
		}
		ctxtime.Sleep(ctx, retryUpdater)
	}
}

// command runs a command of the updater until ctx ends.
func (r *longRun) command(ctx context.Context, input []byte, args ...string) (output string, err error) {
	command := exec.CommandContext(ctx, filepath.Join(binaries, "docstore-updater"), args...)
	command.Stdin = bytes.NewReader(input)
	content, err := command.CombinedOutput()
	return string(content), err
}

// killUpdater runs a command for a short time.
func (r *longRun) killUpdater(ctx context.Context, input []byte, args ...string) {
	ctx, cancel := context.WithTimeout(ctx, rand.N(maxUpdaterLife))
	defer cancel()
	if _, err := r.command(ctx, input, args...); err != nil {
		r.tally(updaterOf, args[0]+" killed")
	}
}

// converge waits until all daemons serve the state that was announced when it began, which
// all answers must then show.
func (r *longRun) converge() {
	r.t.Helper()
	r.mu.Lock()
	state, manifest := r.mu.announced, r.mu.manifest
	r.mu.Unlock()
	for _, d := range r.f.daemons() {
		d.poll(r.t, "/api/v1/status", func(status int, body []byte) bool {
			var s struct {
				Columns []struct {
					Ready            bool
					Fetching, Failed int
				}
				Collections []struct {
					Ready    bool
					Manifest struct{ Served uint64 }
				}
			}
			require.Equal(r.t, http.StatusOK, status)
			require.NoError(r.t, json.Unmarshal(body, &s))
			for _, one := range s.Collections {
				if !one.Ready || one.Manifest.Served < manifest {
					return false
				}
			}
			return len(s.Columns) == 1 && s.Columns[0].Ready && s.Columns[0].Fetching+s.Columns[0].Failed == 0
		})
	}
	r.model.served(state)
}

// requireLatest requires each document in its last version.
func requireLatest(f *columnFleet, m *model) {
	f.t.Helper()
	want := m.latest()
	client, err := etcdclient.Open(f.etcd.Address, collectionName, nil)
	require.NoError(f.t, err)
	defer client.Close()
	require.NoError(f.t, client.WaitReady(f.t.Context()))
	for ids := range slices.Chunk(slices.Sorted(maps.Keys(want)), canaryBatch) {
		require.NoError(f.t, client.GetMany(f.t.Context(), ids, func(i int, document []byte, err error) error {
			if want[ids[i]] == nil {
				require.ErrorIs(f.t, err, docservice.ErrNotFound, ids[i])
				return nil
			}
			require.NoError(f.t, err, ids[i])
			require.Equal(f.t, string(want[ids[i]]), string(document))
			return nil
		}))
	}
}

// endProcesses kills the processes that an interrupted part of a run has left: those of its
// programs with its directory on their command line.
func endProcesses(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	require.NoError(t, err)
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		line, err := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		if err != nil || !bytes.Contains(line, []byte(dir+"/")) {
			continue
		}
		program, _, _ := strings.Cut(string(line), "\x00")
		if slices.Contains([]string{"docserviced", "docstore-updater", "etcd", s3Program}, filepath.Base(program)) {
			require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
		}
	}
}
