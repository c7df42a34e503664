package memcached_test

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/docservice/memcached"
)

// impostor starts a server that answers every command with the same bytes, in pieces of a
// size.
func impostor(t *testing.T, answer []byte, piece int) (address string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			serving.Go(func() {
				defer conn.Close()
				commands := bufio.NewReader(conn)
				for {
					if _, err := commands.ReadString('\n'); err != nil {
						return
					}
					for rest := answer; len(rest) > 0; {
						n := min(piece, len(rest))
						if _, err := conn.Write(rest[:n]); err != nil {
							return
						}
						rest = rest[n:]
					}
				}
			})
		}
	})
	t.Cleanup(func() { listener.Close(); serving.Wait() })
	return listener.Addr().String()
}

// A server that announces or sends more than any stored value costs no memory and is marked
// as down.
func TestResponsesBeyondLimits(t *testing.T) {
	value := append(append([]byte("VALUE key 0 1000000\r\n"), make([]byte, 1_000_000)...), "\r\n"...)
	for name, answer := range map[string][]byte{
		"a value of gigabytes":     []byte("VALUE key 0 4000000000\r\n"),
		"more than a number holds": []byte("VALUE key 0 99999999999999999999\r\n"),
		"a byte too long":          fmt.Appendf(nil, "VALUE key 0 %d\r\n", memcached.MaxItemBytes+1),
		"no length":                []byte("VALUE key 0\r\n"),
		"values without end":       bytes.Repeat(value, 40),
		"a line without end":       bytes.Repeat([]byte("VALUE key"), 1<<20),
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t, impostor(t, answer, len(answer)))
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			for range memcached.FailuresToOpen {
				getMany(s, "key", "other") // some values may arrive before the error
			}
			runtime.ReadMemStats(&after)
			require.False(t, s.Up(0))
			require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(memcached.FailuresToOpen*64<<20))
		})
	}
}

// A valid response is read however it is split into pieces.
func TestResponsesInPieces(t *testing.T) {
	largest := bytes.Repeat([]byte("VALUE x 0 9999999999\r\n"), memcached.MaxItemBytes/22) // looks like protocol lines
	for _, piece := range []int{1, 2, 3, 7, 20, 1 << 20} {
		value := largest
		if piece < 20 {
			value = largest[:220]
		}
		answer := fmt.Appendf(nil, "VALUE key 0 %d\r\n%s\r\nEND\r\n", len(value), value)
		s := open(t, impostor(t, answer, piece))
		for range 3 {
			got, ok := s.Get(0, "key")
			require.True(t, ok)
			require.True(t, bytes.Equal(value, got))
		}
	}
}
