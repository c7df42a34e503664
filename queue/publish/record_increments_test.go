package publish

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// streaming returns the record of a stream whose head and announced manifest is 2.
func streaming(t *testing.T) Record {
	t.Helper()
	r, err := Record{}.takeOver("queue", "owner", false, true)
	require.NoError(t, err)
	require.True(t, r.Increments)
	return next(t, next(t, r))
}

// next commits and announces a manifest.
func next(t *testing.T, r Record) Record {
	t.Helper()
	m := &Manifest{Number: r.Head.Number + 1, Previous: r.Head}
	r, err := r.commitNext("owner", "queue", m, Digest{byte(m.Number)}, false, true)
	require.NoError(t, err)
	return r
}

func TestStreamAnnouncesUntilStopped(t *testing.T) {
	r := streaming(t)
	require.Equal(t, r.Head, r.Announced)
	require.True(t, r.Extends("group"))

	held, err := r.hold("owner", "too many deletes")
	require.NoError(t, err)
	require.Equal(t, "too many deletes", held.whyNot("queue"))
	held = next(t, held)
	require.EqualValues(t, 2, held.Announced.Number)
	require.True(t, held.Extends(""), "what was announced is served")
	held, err = held.Validate(held.Head)
	require.NoError(t, err)
	held, err = held.Announce(held.Head)
	require.NoError(t, err)
	require.Empty(t, held.whyNot("queue"))
	require.EqualValues(t, 4, next(t, held).Announced.Number)

	_, err = r.hold("another", "")
	require.ErrorIs(t, err, ErrFenced)
	require.NotEmpty(t, r.whyNot("another queue"))
}

func TestPinnedServersDoNotExtend(t *testing.T) {
	r := streaming(t)
	pinned, err := r.Pin(Pin{Group: "canary", To: r.Head})
	require.NoError(t, err)
	require.False(t, pinned.Extends("canary"), "a pin holds exactly the manifest")
	require.True(t, pinned.Extends(""))
	require.Empty(t, pinned.whyNot("queue"))
	pinned, err = r.Pin(Pin{To: r.Head})
	require.NoError(t, err)
	require.False(t, pinned.Extends("canary"))
	require.Equal(t, "all servers are pinned", pinned.whyNot("queue"))
	require.EqualValues(t, 2, next(t, pinned).Announced.Number)

	rolledBack, err := r.Rollback(Pin{To: Ref{1, Digest{1}}})
	require.NoError(t, err)
	require.False(t, rolledBack.Extends(""))
	require.NotEmpty(t, rolledBack.whyNot("queue"))
}
