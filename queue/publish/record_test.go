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
	r, err := Record{}.takeOver("queue", "owner", false, false)
	require.NoError(t, err)
	for range 2_000 {
		before, err := json.Marshal(r)
		require.NoError(t, err)
		ref := Ref{Number: rng.Uint64N(r.Head.Number + 2)}
		group := groups[rng.IntN(len(groups))]
		old := r
		var next Record
		switch rng.IntN(9) {
		case 0, 1:
			next, err = r.commit("owner", "queue", &Manifest{Number: r.Head.Number + 1, Previous: r.Head}, Digest{}, false)
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
		case 8:
			next, err = r.StartCanary(Canary{Group: groups[1+rng.IntN(2)], To: ref})
		}
		after, marshalErr := json.Marshal(old)
		require.NoError(t, marshalErr)
		require.JSONEq(t, string(before), string(after))
		if err != nil {
			require.ErrorIs(t, err, ErrRefused)
			continue
		}
		require.False(t, r.Frozen && next.Announced != r.Announced, "announced while frozen")
		r = next
		require.False(t, r.Frozen && r.PinOf("") == nil, "frozen without a pin of all servers")
		for i, b := range r.Bad {
			require.LessOrEqual(t, b.From, b.To)
			require.True(t, i == 0 || r.Bad[i-1].To+1 < b.From, "bad ranges are merged and sorted: %v", r.Bad)
		}
		for _, g := range groups {
			target := r.Target(g)
			require.LessOrEqual(t, target.Number, r.Head.Number)
			require.LessOrEqual(t, target.Number, r.Served)
			require.True(t, !r.IsBad(target.Number) || accepted[target.Number], "group %q is told to serve %d: %+v", g, target.Number, r)
		}
	}
}

// committed returns a record with n manifests. The first ones are validated, and one
// is announced.
func committed(t *testing.T, n, validated, announced uint64) Record {
	t.Helper()
	r, err := Record{}.takeOver("queue", "owner", false, false)
	require.NoError(t, err)
	for number := range n {
		r, err = r.commit("owner", "queue", &Manifest{Number: number + 1, Previous: r.Head}, Digest{}, false)
		require.NoError(t, err)
	}
	r.Validated.Number, r.Announced.Number = validated, announced
	return r
}

// TestTargetPrecedence: the pin of the group, the pin of all, the canary, the announced one.
func TestTargetPrecedence(t *testing.T) {
	r := committed(t, 5, 5, 2)
	target := func(want uint64) {
		t.Helper()
		require.Equal(t, want, r.Target("canary").Number)
	}
	apply := func(next Record, err error) {
		t.Helper()
		require.NoError(t, err)
		r = next
	}
	target(2)
	apply(r.StartCanary(Canary{Group: "canary", To: Ref{Number: 5}}))
	target(5)
	apply(r.Pin(Pin{To: Ref{Number: 3}}))
	target(3)
	apply(r.Pin(Pin{Group: "canary", To: Ref{Number: 1}}))
	target(1)
	apply(r.Unpin("canary", false))
	apply(r.Unpin("", false))
	target(5)
	apply(r.StartCanary(Canary{Group: "canary", To: Ref{Number: 2}})) // the announced one ends it
	require.Empty(t, r.Canaries)
	apply(r.StartCanary(Canary{Group: "canary", To: Ref{Number: 4}}))
	apply(r.Announce(Ref{Number: 4}))
	require.Empty(t, r.Canaries, "the announcement has reached the canary")
	require.EqualValues(t, 5, r.Served)
}

func TestCanaryRefusals(t *testing.T) {
	r := committed(t, 5, 4, 2)
	bad, err := r.Refuse(Ref{Number: 4})
	require.NoError(t, err)
	pinned, err := r.Pin(Pin{To: Ref{Number: 3}})
	require.NoError(t, err)
	frozen, err := r.Rollback(Pin{To: Ref{Number: 1}})
	require.NoError(t, err)
	for name, test := range map[string]struct {
		record Record
		canary Canary
		want   string
	}{
		"no group":      {r, Canary{To: Ref{Number: 3}}, "--canary GROUP"},
		"unknown":       {r, Canary{Group: "c", To: Ref{Number: 6}}, "no manifest 6; the newest is 5"},
		"not validated": {r, Canary{Group: "c", To: Ref{Number: 5}}, "run validate --to 5"},
		"old":           {r, Canary{Group: "c", To: Ref{Number: 1}}, "use pin or rollback"},
		"announced":     {r, Canary{Group: "c", To: Ref{Number: 2}}, "has no canary"},
		"bad":           {bad, Canary{Group: "c", To: Ref{Number: 4}}, "marked as bad"},
		"pinned":        {pinned, Canary{Group: "c", To: Ref{Number: 3}}, "unpin it first"},
		"frozen":        {frozen, Canary{Group: "c", To: Ref{Number: 2}}, "run revert"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := test.record.StartCanary(test.canary)
			require.ErrorIs(t, err, ErrRefused)
			require.ErrorContains(t, err, test.want)
		})
	}
}

// TestRollbackFreezesAnnouncing also of manifests that are committed later, until a clean one
// is announced.
func TestRollbackFreezesAnnouncing(t *testing.T) {
	r := committed(t, 3, 3, 3)
	r, err := r.Rollback(Pin{To: Ref{Number: 1}})
	require.NoError(t, err)
	r, err = r.commit("owner", "queue", &Manifest{Number: 4, Previous: r.Head}, Digest{}, false)
	require.NoError(t, err)
	r, err = r.Validate(Ref{Number: 4})
	require.NoError(t, err)
	_, err = r.Announce(Ref{Number: 4})
	require.ErrorContains(t, err, "run revert")
	_, err = r.StartCanary(Canary{Group: "canary", To: Ref{Number: 4}})
	require.ErrorContains(t, err, "run revert")
	_, err = r.Unpin("", false)
	require.ErrorContains(t, err, "run revert")
	accepted, err := r.Unpin("", true)
	require.NoError(t, err)
	_, err = accepted.Announce(Ref{Number: 4})
	require.NoError(t, err)
}

func TestContinues(t *testing.T) {
	r := committed(t, 9, 9, 0)
	r.Bad, r.Generations = []Range{{3, 4}}, []uint64{7}
	for _, test := range []struct {
		served, target uint64
		want           bool
	}{
		{0, 9, true}, // nothing is served that could become wrong
		{1, 2, true}, {1, 3, true}, {1, 4, false}, {1, 5, false}, {2, 5, false}, {3, 5, false}, {4, 5, true}, {5, 6, true},
		{5, 7, false}, {7, 9, true},
		{2, 1, false}, {9, 6, false},
	} {
		require.Equal(t, test.want, r.Continues(test.served, test.target), "from %d to %d", test.served, test.target)
	}
	require.True(t, r.SameQueue(1, 6))
	require.False(t, r.SameQueue(6, 7))
}

// TestInUse: gc keeps what a server may serve.
func TestInUse(t *testing.T) {
	base := Ref{Number: 6}
	r := Record{
		Head: Ref{Number: 9}, Validated: Ref{Number: 1}, Announced: Ref{Number: 2}, Retained: []Ref{{Number: 3}},
		Pins: []Pin{{To: Ref{Number: 4}}}, Canaries: []Canary{{To: Ref{Number: 5}}}, Base: &base,
	}
	for number := range uint64(10) {
		require.Equal(t, number >= 1 && number <= 6, r.InUse(number), "manifest %d", number)
	}
}
