package publish

import (
	"encoding/json"
	"testing"

	"docstore/internal/testseed"

	"github.com/stretchr/testify/require"
)

// TestRecordInvariants applies random operations. No server is ever told to serve a
// manifest that is bad or does not exist, unless that was accepted, and an operation does
// not change the record that it was applied to.
func TestRecordInvariants(t *testing.T) {
	rng := testseed.Rand(t)
	groups := []string{"", "canary", "zone-b"}
	accepted := map[uint64]bool{}
	r, err := Record{}.takeOver("queue", "owner")
	require.NoError(t, err)
	for range 2_000 {
		before, err := json.Marshal(r)
		require.NoError(t, err)
		ref := Ref{Number: rng.Uint64N(r.Head.Number + 2)}
		group := groups[rng.IntN(len(groups))]
		old := r
		var next Record
		switch rng.IntN(8) {
		case 0, 1:
			next, err = r.commit("owner", &Manifest{Number: r.Head.Number + 1, Previous: r.Head}, Digest{})
			require.NoError(t, err)
		case 2:
			next, err = r.Validate(ref)
		case 3:
			next, err = r.Announce(ref)
		case 4:
			next, err = r.Pin(Pin{Group: group, To: ref})
		case 5:
			accept := rng.IntN(4) == 0
			if next, err = r.Unpin(group, accept); err == nil && accept {
				accepted[next.Target(group).Number] = true
			}
		case 6:
			next, err = r.Rollback(Pin{To: ref})
			if err == nil {
				require.Equal(t, ref, next.Target(""))
			}
		case 7:
			next, err = r.Refuse(ref)
		}
		after, marshalErr := json.Marshal(old)
		require.NoError(t, marshalErr)
		require.JSONEq(t, string(before), string(after))
		if err != nil {
			require.ErrorIs(t, err, ErrRefused)
			continue
		}
		r = next
		for i, b := range r.Bad {
			require.LessOrEqual(t, b.From, b.To)
			require.True(t, i == 0 || r.Bad[i-1].To+1 < b.From, "bad ranges are merged and sorted: %v", r.Bad)
		}
		for _, g := range groups {
			target := r.Target(g)
			require.LessOrEqual(t, target.Number, r.Head.Number)
			require.True(t, !r.IsBad(target.Number) || accepted[target.Number], "group %q is told to serve %d: %+v", g, target.Number, r)
		}
	}
}
