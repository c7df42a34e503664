package collection

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"docstore/docservice"
	"docstore/docservice/internal/wire"
	"docstore/internal/testseed"
	"docstore/internal/vfs"
	"docstore/queue"
	"docstore/queue/codec"
)

// Prefetching does not change the answer of any get.
func TestPrefetchChangesNoAnswer(t *testing.T) {
	random := testseed.Rand(t)
	f := newFixture(t, vfs.OS, t.TempDir()) // segments are mapped
	f.putMany("a", 500)
	f.put("empty", "")
	_, err := f.writer.Delete([]byte("a-3"))
	require.NoError(t, err)
	f.seal()
	c := f.ready()
	other := newFixture(t, vfs.OS, t.TempDir())
	other.putMany("b", 10)
	o, err := Open("others", other.queueDir, other.dir, &other.options)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, o.Close()) })
	require.NoError(t, o.WaitReady(soon(t)))
	service := NewService(c, o)
	require.Contains(t, service.Prefetch(), docservice.MethodGet)

	oneRequest := func() []byte {
		collection, id := "jobs", fmt.Sprint("a-", random.IntN(520))
		switch random.IntN(12) {
		case 0:
			collection = "others"
		case 1:
			collection = "nope"
		case 2:
			id = []string{"", "empty", "a-3", strings.Repeat("x", queue.MaxIDBytes+1)}[random.IntN(4)]
		case 3:
			return []byte{0xff, byte(random.Uint32())}
		}
		return wire.AppendAccept(wire.AppendID(wire.AppendCollection(nil, collection), id), []codec.Set{0, codec.Built()}[random.IntN(2)])
	}
	requests := make([][]byte, 400)
	type answer struct{ response, err string }
	alone := make([]answer, len(requests))
	handle := func(request []byte) answer {
		response, err := service.Handle(t.Context(), docservice.MethodGet, request, nil)
		return answer{string(response), fmt.Sprint(err)}
	}
	for i := range requests {
		requests[i] = oneRequest()
		alone[i] = handle(requests[i])
	}
	before := c.gets.found.Load()
	var running sync.WaitGroup
	for from := range 8 {
		running.Go(func() {
			for at := from; at+16 <= len(requests); at += 8 {
				service.prefetch(requests[at : at+16])
				for i := at; i < at+16; i++ {
					assert.Equal(t, alone[i], handle(requests[i]))
				}
			}
		})
	}
	running.Wait()
	require.Greater(t, c.gets.found.Load(), before)
	counted := c.gets.found.Load()
	service.prefetch(requests[:16])
	require.Equal(t, counted, c.gets.found.Load(), "no document was read")

	require.NoError(t, c.Close())
	service.prefetch(requests[:16])
	for i := range requests[:16] {
		if handle(requests[i]) != alone[i] {
			require.Contains(t, handle(requests[i]).err, ErrClosed.Error())
		}
	}
}
