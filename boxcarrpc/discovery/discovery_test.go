package discovery_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/boxcarrpc/discovery"
)

// watch returns the first snapshot of a source.
func watch(t *testing.T, s discovery.Source) (got []discovery.Snapshot) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	err := s.Watch(ctx, func(snapshot discovery.Snapshot) {
		got = append(got, snapshot)
		cancel()
	})
	require.ErrorIs(t, err, context.Canceled)
	return got
}

func TestStatic(t *testing.T) {
	got := watch(t, discovery.Static("a:1", "b:1", "a:1", "c:1"))
	require.Equal(t, []discovery.Snapshot{{
		Servers: []discovery.Server{{Number: 0, Address: "a:1"}, {Number: 1, Address: "b:1"}, {Number: 2, Address: "c:1"}},
		Numbers: 3,
		Self:    -1,
	}}, got)
	require.Empty(t, watch(t, discovery.Static())[0].Servers)
}

func TestPattern(t *testing.T) {
	got := watch(t, discovery.Pattern("be-%d.search:7070", 1000))
	require.Len(t, got, 1)
	require.Equal(t, 1000, got[0].Numbers)
	require.Equal(t, -1, got[0].Self)
	for i, s := range got[0].Servers {
		require.Equal(t, discovery.Server{Number: i, Address: fmt.Sprintf("be-%d.search:7070", i)}, s)
	}
	require.Empty(t, watch(t, discovery.Pattern("%d", -1))[0].Servers)
}

func TestPatternRejectsTooManyServers(t *testing.T) {
	var tooHigh *discovery.NumberError
	require.ErrorAs(t, discovery.Pattern("be-%d:7070", discovery.MaxNumber+2).Watch(t.Context(), nil), &tooHigh)
	require.Equal(t, "pattern be-%d:7070", tooHigh.Source)
}

func TestDenseOmitsServersAfterALargeGap(t *testing.T) {
	number := func(numbers ...int) (servers []discovery.Server) {
		for _, n := range numbers {
			servers = append(servers, discovery.Server{Number: n})
		}
		return servers
	}
	high := discovery.Limit(3)
	for _, test := range []struct{ all, dense, rest []discovery.Server }{
		{nil, nil, nil},
		{number(2, 0, 1), number(0, 1, 2), nil},
		{number(high-1, 1, 0), number(0, 1, high-1), nil},
		{number(high, 1, 0), number(0, 1), number(high)},
		{number(discovery.MaxNumber, 7, high), number(7), number(high, discovery.MaxNumber)},
		{number(discovery.MaxNumber), nil, number(discovery.MaxNumber)},
	} {
		dense, rest := discovery.Dense(test.all)
		require.ElementsMatch(t, test.dense, dense)
		require.ElementsMatch(t, test.rest, rest)
	}
}

func ExamplePattern() {
	ctx, cancel := context.WithCancel(context.Background())
	_ = discovery.Pattern("be-%d.search:7070", 3).Watch(ctx, func(s discovery.Snapshot) {
		for _, server := range s.Servers {
			fmt.Println(server.Number, server.Address)
		}
		cancel()
	})
	// Output:
	// 0 be-0.search:7070
	// 1 be-1.search:7070
	// 2 be-2.search:7070
}

func ExampleStatic() {
	ctx, cancel := context.WithCancel(context.Background())
	_ = discovery.Static("10.0.0.7:7070", "10.0.0.8:7070").Watch(ctx, func(s discovery.Snapshot) {
		fmt.Println(len(s.Servers), "servers")
		cancel()
	})
	// Output: 2 servers
}
