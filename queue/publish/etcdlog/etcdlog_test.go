//go:build linux

package etcdlog

import (
	"bufio"
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/errors"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"

	"docstore/internal/etcdtest"
	"docstore/internal/publishtest"
	"docstore/internal/testseed"
	"docstore/queue/bucket"
	"docstore/queue/publish"
)

// The environment of a writer process; see runWriter.
const writerEtcd, writerBucket = "ETCDLOG_TEST_ETCD", "ETCDLOG_TEST_BUCKET"

func TestMain(m *testing.M) {
	if endpoints := os.Getenv(writerEtcd); endpoints != "" {
		runWriter(endpoints, os.Getenv(writerBucket))
		return
	}
	goleak.VerifyTestMain(m)
}

var short = &Options{Lease: time.Second, Timeout: 30 * time.Second}

func open(t *testing.T, endpoints string, options *Options) *Arbiter {
	t.Helper()
	a, err := Open(endpoints, options)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, a.Close()) })
	return a
}

func TestArbiter(t *testing.T) {
	server := etcdtest.Start(t)
	publishtest.TestArbiter(t, func(t *testing.T) publish.Arbiter { return open(t, server.Address, short) })
}

// TestUpdateContinuesAfterKillOfEtcd during the update.
func TestUpdateContinuesAfterKillOfEtcd(t *testing.T) {
	server := etcdtest.Start(t)
	b := publish.WithArbiter(publishtest.NewBucket(t), open(t, server.Address, short))
	log, err := publish.OpenLog(t.Context(), b, time.Now)
	require.NoError(t, err)
	for range 3 {
		server.Kill()
		updated := make(chan error)
		go func() {
			_, err := log.Update(t.Context(), publishtest.RaiseEpoch)
			updated <- err
		}()
		server.Restart(t)
		require.NoError(t, <-updated)
	}
	record, err := log.Load(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 3, record.Epoch)
}

func TestUnreachableEtcdIsReportedAfterTheTimeout(t *testing.T) {
	a := open(t, "127.0.0.1:1", &Options{Timeout: 300 * time.Millisecond})
	_, _, err := a.Get(t.Context(), "key")
	require.ErrorContains(t, err, "etcd at 127.0.0.1:1 did not answer within 300ms: check --etcd")
}

func TestInvalidEndpoints(t *testing.T) {
	for _, endpoints := range []string{"", "http://127.0.0.1:2379", "etcd://127.0.0.1:2379", "etcd://127.0.0.1:2379/a?b=c"} {
		require.Error(t, Check(endpoints), endpoints)
	}
	require.NoError(t, Check("10.0.0.1:2379,10.0.0.2:2379"))
	require.NoError(t, Check("etcd://10.0.0.1:2379/docs"))
}

// runWriter publishes to a collection for as long as it may: it takes over, raises the epoch
// again and again, and takes over again after it was fenced. It prints each commit.
func runWriter(endpoints, dir string) {
	owner := rand.Text()
	a, err := Open(endpoints, short)
	if err != nil {
		panic(err)
	}
	b, err := bucket.Open(context.Background(), "file://"+dir, bucket.Options{})
	if err != nil {
		panic(err)
	}
	for {
		log, err := publish.OpenLog(context.Background(), publish.WithArbiter(b, a), time.Now)
		if err == nil {
			err = write(log, owner)
			log.Release()
		}
		if !errors.Is(err, publish.ErrFenced) && !errors.Is(err, publish.ErrRefused) {
			fmt.Printf("failed: %v\n", err)
		}
	}
}

func write(log *publish.Log, owner string) error {
	ctx := context.Background()
	if err := log.Claim(ctx); err != nil {
		return err
	}
	change := func(r publish.Record) (publish.Record, error) {
		r, err := publishtest.RaiseEpoch(r)
		r.Owner = owner
		return r, err
	}
	for {
		r, err := log.Update(ctx, change)
		if err != nil {
			return err
		}
		fmt.Println(r.Epoch, owner)
		change = func(r publish.Record) (publish.Record, error) {
			if r.Owner != owner {
				return r, publish.ErrFenced
			}
			return publishtest.RaiseEpoch(r)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// pair is a collection with two writer processes.
type pair struct {
	dir     string
	writers []*exec.Cmd
	reading sync.WaitGroup

	mu      sync.Mutex
	commits map[string]string // owner by epoch
	last    int               // the writer of the last commit
	count   int
	failed  []string
}

func startPair(t *testing.T, endpoints string) *pair {
	p := &pair{dir: filepath.Join(t.TempDir(), "bucket"), commits: map[string]string{}}
	require.NoError(t, os.Mkdir(p.dir, 0o700))
	for i := range 2 {
		command := exec.Command(os.Args[0])
		command.Env = append(os.Environ(), writerEtcd+"="+endpoints, writerBucket+"="+p.dir)
		command.Stderr = os.Stderr
		output, err := command.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, command.Start())
		p.writers = append(p.writers, command)
		p.reading.Go(func() {
			for lines := bufio.NewScanner(output); lines.Scan(); {
				p.add(i, lines.Text())
			}
		})
	}
	t.Cleanup(p.kill)
	return p
}

func (p *pair) add(writer int, line string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	epoch, owner, _ := strings.Cut(line, " ")
	if other, found := p.commits[epoch]; found || epoch == "failed:" {
		p.failed = append(p.failed, line+" "+other)
	}
	p.commits[epoch], p.last = owner, writer
	p.count++
}

// kill kills the writers and waits for their output.
func (p *pair) kill() {
	for _, w := range p.writers {
		_ = w.Process.Kill() // it may have ended
	}
	p.reading.Wait()
	for _, w := range p.writers {
		_ = w.Wait()
	}
	p.writers = nil
}

// waitCommits waits for n more commits.
func (p *pair) waitCommits(t *testing.T, n int) {
	t.Helper()
	p.mu.Lock()
	want := p.count + n
	p.mu.Unlock()
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(10 * time.Millisecond) {
		p.mu.Lock()
		count := p.count
		p.mu.Unlock()
		if count >= want {
			return
		}
		require.True(t, time.Now().Before(deadline), "the writers of %s do not commit", p.dir)
	}
}

// TestPausedWriters stops the writer that commits for three leases, and kills etcd in some
// rounds. The other writer takes over. No number is committed twice, and the bucket holds
// each commit that a writer has reported.
func TestPausedWriters(t *testing.T) {
	pairs, rounds := 13, 4
	if testing.Short() {
		pairs, rounds = 4, 1
	}
	server, rng := etcdtest.Start(t), testseed.Rand(t)
	var all []*pair
	for range pairs {
		all = append(all, startPair(t, server.Address))
	}
	for round := range rounds {
		var paused []*os.Process
		for _, p := range all {
			p.waitCommits(t, 1+rng.IntN(3))
			p.mu.Lock()
			writer := p.writers[p.last].Process
			p.mu.Unlock()
			require.NoError(t, writer.Signal(syscall.SIGSTOP))
			paused = append(paused, writer)
		}
		if round%2 == 1 {
			server.Kill()
			server.Restart(t)
		}
		time.Sleep(3 * short.Lease)
		for _, p := range all {
			p.waitCommits(t, 1)
		}
		for _, writer := range paused {
			require.NoError(t, writer.Signal(syscall.SIGCONT))
		}
	}
	for _, p := range all {
		p.waitCommits(t, 5)
		p.kill()
		require.Empty(t, p.failed)
		b, err := bucket.Open(t.Context(), "file://"+p.dir, bucket.Options{})
		require.NoError(t, err)
		checked, err := publish.Check(t.Context(), b)
		require.NoError(t, err)
		require.Empty(t, checked.Problems)
		// The first commit has the incarnation only; the last ones may not have been reported.
		require.GreaterOrEqual(t, int(checked.Commits), len(p.commits)+1)
		require.LessOrEqual(t, int(checked.Commits), len(p.commits)+1+2*rounds+2)
	}
}

// TestClaimAfterLeaseHasEnded: the lease ended before the owner's key was created, because
// the process was stopped.
func TestClaimAfterLeaseHasEnded(t *testing.T) {
	server := etcdtest.Start(t)
	a := open(t, server.Address, short)
	_, err := a.own(t.Context(), "key", 7, 0) // there is no such lease
	require.Equal(t, codes.NotFound, codeOf(err))
	_, release, err := a.Claim(t.Context(), "key", 0)
	require.NoError(t, err)
	release()
}
