package attack

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// attackerClients is the number of clients that the connections of an attack come from.
// Servers distinguish them by their addresses. The good client has another address.
const attackerClients = 16

// attackersVariable is the environment variable that makes this program attack. It contains
// an attackers in JSON.
const attackersVariable = "DOCSTORE_TEST_ATTACKERS"

// attackers are the arguments of a process that attacks.
type attackers struct {
	Attack   string // its name
	Target   addresses
	Seed     uint64
	Duration time.Duration
}

func TestMain(m *testing.M) {
	arguments, ok := os.LookupEnv(attackersVariable)
	if !ok {
		os.Exit(m.Run())
	}
	var a attackers
	if err := json.Unmarshal([]byte(arguments), &a); err != nil {
		panic(err)
	}
	a.run()
}

// startAttackers runs the attack in another process, which gets processor time only when no
// other process needs it. ended receives the error of the process.
func startAttackers(t *testing.T, a *attackers) (ended <-chan error) {
	t.Helper()
	arguments, err := json.Marshal(a)
	require.NoError(t, err)
	command := exec.Command(os.Args[0])
	command.Env = append(os.Environ(), attackersVariable+"="+string(arguments))
	command.Stderr = os.Stderr
	started, done := make(chan error), make(chan error, 1)
	go func() {
		// The process inherits the policy of the thread that starts it. The thread ends with
		// this goroutine, because it stays locked.
		runtime.LockOSThread()
		err := unix.SchedSetAttr(0, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_IDLE}, 0)
		if err == nil {
			err = command.Start()
		}
		started <- err
	}()
	require.NoError(t, <-started)
	go func() { done <- command.Wait() }()
	t.Cleanup(func() { _ = command.Process.Kill() }) // it may have ended
	return done
}

func (a *attackers) run() {
	i := slices.IndexFunc(attacks, func(x attack) bool { return x.name == a.Attack })
	seeds := rand.New(rand.NewPCG(a.Seed, 0))
	ctx, cancel := context.WithTimeout(context.Background(), a.Duration)
	defer cancel()
	var running sync.WaitGroup
	for conn := range attacks[i].conns {
		rng := rand.New(rand.NewPCG(seeds.Uint64(), 0))
		running.Go(func() { attacks[i].repeat(ctx, a.Target, byte(2+conn%attackerClients), rng) })
	}
	running.Wait()
}
