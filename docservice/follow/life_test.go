package follow_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"
	"time"

	"docstore/internal/crashtest"
	"docstore/internal/testseed"
	"docstore/queue/maintain"
	"docstore/queue/publish"

	"github.com/stretchr/testify/require"
)

// life is a fleet to which every operation of the life cycle is applied.
type life struct {
	*fleet
	rng         *rand.Rand
	generations int
}

// try applies an operation to the record; a refusal is allowed.
func (l *life) try(number uint64, operation func(publish.Record, publish.Ref) (publish.Record, error)) {
	l.t.Helper()
	_, ref, err := publish.FindManifest(l.t.Context(), l.bucket.Bucket, number, time.Now)
	if err == nil {
		_, err = l.log.Update(l.t.Context(), func(r publish.Record) (publish.Record, error) { return operation(r, ref) })
	}
	if err != nil {
		require.ErrorIs(l.t, err, publish.ErrRefused)
	}
}

func (l *life) revert(number uint64) {
	l.t.Helper()
	result, err := publish.Revert(l.t.Context(), l.bucket.Bucket, l.queue(), number, nil, nil)
	if err != nil {
		require.ErrorIs(l.t, err, publish.ErrRefused)
		// It refuses before it appends, or after it has published what equals a bad manifest.
		return
	}
	l.newest, l.documents = result.Ref.Number, maps.Clone(l.states[number])
	l.states[l.newest] = maps.Clone(l.documents)
}

func (l *life) discard() {
	l.t.Helper()
	result, err := publish.Discard(l.t.Context(), l.bucket.Bucket, l.queue(), 0, nil)
	if err != nil {
		require.ErrorIs(l.t, err, publish.ErrRefused)
		return
	}
	l.documents = maps.Clone(l.states[result.Parent])
}

// compact keeps what manifests in use need.
func (l *life) compact() {
	l.t.Helper()
	states, err := publish.RetainedStates(l.t.Context(), l.bucket.Bucket, l.queue(), 1+l.rng.Uint64N(3), nil)
	require.NoError(l.t, err)
	for i, dir := range l.queues() {
		_, err = maintain.Compact(l.t.Context(), dir, &maintain.CompactOptions{MaxDead: 0.1, DeleteOriginals: true, RetainedEnds: publish.RetainedEnds(states, i)})
		require.NoError(l.t, err)
	}
}

// replace publishes another queue.
func (l *life) replace() {
	l.t.Helper()
	l.generations++
	l.queueName, l.documents = fmt.Sprint("queue-", l.generations), map[string]string{}
	l.publishEntries(false, &publish.Options{NewGeneration: true}, [2]string{"id-0", fmt.Sprint("generation ", l.generations)})
}

// random applies one operation.
func (l *life) random() {
	l.t.Helper()
	number := 1 + l.rng.Uint64N(l.newest)
	group := []string{"", "canary"}[l.rng.IntN(2)]
	switch l.rng.IntN(14) {
	case 0, 1:
		l.publish(l.rng, false)
	case 2, 3, 4:
		l.try(0, publish.Record.Validate)
		l.try(0, publish.Record.Announce)
	case 5:
		l.try(0, publish.Record.Validate)
		l.try(number, func(r publish.Record, ref publish.Ref) (publish.Record, error) {
			return r.StartCanary(publish.Canary{Group: "canary", To: ref})
		})
	case 6:
		l.try(number, func(r publish.Record, ref publish.Ref) (publish.Record, error) {
			return r.Pin(publish.Pin{Group: group, To: ref})
		})
	case 7:
		l.try(0, func(r publish.Record, _ publish.Ref) (publish.Record, error) { return r.Unpin(group, true) })
	case 8:
		l.try(number, func(r publish.Record, ref publish.Ref) (publish.Record, error) {
			return r.Rollback(publish.Pin{To: ref})
		})
	case 9:
		l.revert(number)
	case 10:
		l.try(0, publish.Record.Refuse)
		l.discard()
	case 11:
		l.compact()
	case 12:
		l.try(number, publish.Record.Retain)
		_, err := publish.Collect(l.t.Context(), l.bucket.Bucket, l.log, 1+l.rng.Uint64N(6), false)
		require.NoError(l.t, err)
	case 13:
		if l.rng.IntN(4) == 0 {
			l.replace()
		}
	}
}

// TestLifeCycle applies random operations. Servers of two groups, which are restarted
// sometimes, reach their targets and answer as these manifests do.
func TestLifeCycle(t *testing.T) {
	t.Run("one queue", func(t *testing.T) { testLifeCycle(t, newFleet) })
	t.Run("shards", func(t *testing.T) { testLifeCycle(t, newShardedFleet) })
}

func testLifeCycle(t *testing.T, newFleet func(*testing.T) *fleet) {
	steps := 60
	if crashtest.Soak() {
		steps = 10_000
	}
	rng := testseed.Rand(t)
	for done := 0; done < steps; done += 60 {
		l := &life{fleet: newFleet(t), rng: rng}
		l.publish(rng, false)
		l.announce(1)
		servers := []*server{l.startServer("", "server-1"), l.startServer("canary", "server-2")}
		for range 60 {
			l.random()
			record, err := l.log.Load(t.Context())
			require.NoError(t, err)
			for _, s := range servers {
				switch rng.IntN(10) {
				case 0, 1, 2, 3, 4:
					s.waitFor(record.Target(s.group).Number)
				case 5:
					s.restart()
				}
			}
		}
		for _, s := range servers {
			require.NoError(t, s.close())
		}
	}
}
