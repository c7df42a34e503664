package queuetest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"
	"time"

	"docstore/queue"

	"github.com/stretchr/testify/require"
)

// Model is the expected state of a queue: the newest entry of each id, and indexes that
// have stopped at some position.
type Model struct {
	Random  *rand.Rand
	Now     time.Time
	Newest  map[string]Item
	Stopped []Follower
}

// Follower is an index of the newest entries before a position.
type Follower struct {
	At    queue.Position
	Index map[string]Indexed
}

// Indexed is the newest entry of an id in an index.
type Indexed struct {
	Address queue.Address
	Expires time.Time
	Place   queue.Place // of a generation up to the present one
}

// Follow returns the index after the given number of further entries; -1: after all.
func (f *Follower) Follow(t *testing.T, r *queue.Reader, steps int) Follower {
	next, err := f.TryFollow(r, steps)
	require.NoError(t, err)
	return next
}

// TryFollow is Follow, and returns the index before an error, too.
func (f *Follower) TryFollow(r *queue.Reader, steps int) (Follower, error) {
	next := Follower{f.At, maps.Clone(f.Index)}
	errEnough := errors.New("enough")
	err := r.Scan(context.Background(), f.At, func(e queue.Entry) error {
		if steps == 0 {
			return errEnough
		}
		steps--
		next.At = e.Next
		delete(next.Index, string(e.ID))
		if !e.Deleted {
			next.Index[string(e.ID)] = Indexed{e.Address, e.Expires, e.Place}
		}
		return nil
	})
	if errors.Is(err, errEnough) {
		err = nil
	}
	return next, err
}

// Write appends random entries, and sometimes seals the segment.
func (m *Model) Write(t *testing.T, w *queue.Writer, count int) {
	for range count {
		it := Item{ID: fmt.Sprint("id", m.Random.IntN(40))}
		switch m.Random.IntN(8) {
		case 0:
			it.Deleted = true
		case 1:
			it.Expires = m.Now.Add(time.Duration(m.Random.IntN(20)-5) * time.Second).Truncate(time.Second)
			fallthrough
		default:
			it.Document = string(RandomBytes(m.Random, m.Random.IntN(200)))
		}
		it.Put(t, w)
		m.Newest[it.ID] = it
		if m.Random.IntN(20) == 0 {
			require.NoError(t, w.Flush())
		}
		if m.Random.IntN(30) == 0 {
			require.NoError(t, w.Seal())
		}
	}
	require.NoError(t, w.Flush())
}

func (m *Model) live(id string) bool {
	it, ok := m.Newest[id]
	return ok && !it.Deleted && (it.Expires.IsZero() || m.Now.Before(it.Expires))
}

// RequireIndex checks that an index at the end of the queue serves each live document,
// and nothing else.
func (m *Model) RequireIndex(t *testing.T, r *queue.Reader, f Follower) {
	for id := range m.Newest {
		require.NoError(t, m.CheckID(t, r, f, id))
	}
}

// CheckID checks the answer of an index for an id whose newest entry it has read. It
// returns the error of fetching a live document, which must not be that the document is
// gone.
func (m *Model) CheckID(t *testing.T, r *queue.Reader, f Follower, id string) error {
	known, ok := f.Index[id]
	if ok && !known.Expires.IsZero() && !m.Now.Before(known.Expires) {
		ok = false
	}
	if !ok {
		require.False(t, m.live(id), "%s is not in the index", id)
		return nil
	}
	document, err := r.DocumentFor(nil, []byte(id), known.Address)
	wanted := queue.Wanted{ID: []byte(id), Address: known.Address, Place: known.Place}
	placed, _, placedErr := r.StoredFor(nil, wanted, 0)
	if errors.Is(placedErr, queue.ErrOtherPlace) { // the checksum in the block's table may be damaged
		wanted.Place = queue.Place{}
		placed, _, placedErr = r.StoredFor(nil, wanted, 0)
	}
	if placedErr == nil { // although the block's table may be damaged
		require.True(t, m.live(id), "%s is deleted", id)
		require.Equal(t, m.Newest[id].Document, string(placed))
	} else {
		require.Equal(t, fmt.Sprint(err), placedErr.Error())
	}
	var gone *queue.GoneError
	isGone := errors.As(err, &gone) && gone.Settled.Next.Compare(f.At.Next) <= 0
	switch {
	case !m.live(id):
		require.Error(t, err, "%s is deleted", id)
		if isGone {
			return nil
		}
	case err == nil:
		require.Equal(t, m.Newest[id].Document, string(document))
	default:
		require.False(t, isGone, "%s: %v", id, err)
	}
	return err
}
