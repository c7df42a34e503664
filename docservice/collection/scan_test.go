package collection

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"docstore/boxcarrpc"
	"docstore/docservice"
	"docstore/docservice/docservicepb"
	"docstore/internal/testseed"
	"docstore/queue"
)

// scanned is one entry of a scan.
type scanned struct{ id, document string }

func scanAll(t testing.TB, c *Collection, o docservice.ScanOptions) (all []scanned) {
	t.Helper()
	err := c.Scan(t.Context(), o, func(id []byte, answer Answer) error {
		require.NoError(t, answer.Err)
		all = append(all, scanned{string(id), string(answer.Document)})
		return nil
	})
	require.NoError(t, err)
	return all
}

// pages returns all entries that a client gets page by page.
func pages(t testing.TB, client *docservice.Client, o docservice.ScanOptions) (all []scanned) {
	t.Helper()
	for {
		next, err := client.Scan(soon(t), o, func(id string, document []byte, err error) error {
			require.NoError(t, err)
			all = append(all, scanned{id, string(document)})
			return nil
		})
		require.NoError(t, err)
		if next == nil {
			return all
		}
		require.Greater(t, string(next), string(o.After))
		o.After = next
	}
}

// TestScanHidesCanaries: lists and counts leave the documents of probes out, unless their prefix
// asks for them.
func TestScanHidesCanaries(t *testing.T) {
	f := newMemFixture(t)
	var last queue.Address
	for _, id := range []string{"a", "docstore-canar", "docstore-canary", "docstore-canary-2", "docstore-x"} {
		var err error
		last, err = f.queueWriter().Append([]byte(id), []byte("{}"))
		require.NoError(t, err)
	}
	require.NoError(t, f.writer.Flush())
	c := f.ready()
	require.NoError(t, c.WaitFor(soon(t), last))
	for prefix, want := range map[string][]string{
		"": {"a", "docstore-canar", "docstore-x"}, "docstore": {"docstore-canar", "docstore-x"},
		"docstore-canary": {"docstore-canary", "docstore-canary-2"}, "docstore-canary-2": {"docstore-canary-2"},
	} {
		var got []string
		for _, one := range scanAll(t, c, docservice.ScanOptions{Prefix: []byte(prefix), IDsOnly: true}) {
			got = append(got, one.id)
		}
		require.Equal(t, want, got, prefix)
		count, err := c.Count(t.Context(), []byte(prefix))
		require.NoError(t, err)
		require.EqualValues(t, len(want), count)
	}
	var first []string
	for _, one := range scanAll(t, c, docservice.ScanOptions{Limit: 3, IDsOnly: true}) {
		first = append(first, one.id)
	}
	require.Equal(t, []string{"a", "docstore-canar", "docstore-x"}, first)
	document, err := c.Get(nil, []byte("docstore-canary"))
	require.NoError(t, err)
	require.Equal(t, "{}", string(document))
}

// A scan returns the same entries as a sorted map.
func TestScanModel(t *testing.T) {
	random := testseed.Rand(t)
	f := newMemFixture(t)
	want := map[string]string{}
	expires := map[string]string{}
	var last queue.Address
	for n := range 3000 {
		id := fmt.Sprintf("%c%c\xff%d", 'a'+random.IntN(3), random.IntN(256), random.IntN(20))
		id = id[:1+random.IntN(len(id))]
		var err error
		switch random.IntN(6) {
		case 0:
			last, err = f.queueWriter().Delete([]byte(id))
			delete(want, id)
			delete(expires, id)
		case 1:
			last, err = f.queueWriter().Put(queue.Record{ID: []byte(id), Document: []byte("gone"), Expires: f.clock.Now().Add(time.Hour)})
			delete(want, id)
			expires[id] = "gone"
		default:
			document := strings.Repeat(fmt.Sprint(n), random.IntN(10))
			last, err = f.queueWriter().Append([]byte(id), []byte(document))
			want[id] = document
			delete(expires, id)
		}
		require.NoError(t, err)
	}
	require.NoError(t, f.writer.Flush())
	c := f.ready()
	require.NoError(t, c.WaitFor(soon(t), last))
	client := dial(t, serve(t, c))

	check := func(rounds int) {
		t.Helper()
		ids := slices.Sorted(maps.Keys(want))
		for range rounds {
			o := docservice.ScanOptions{IDsOnly: random.IntN(4) == 0, Limit: random.IntN(40)}
			if random.IntN(2) == 0 {
				id := ids[random.IntN(len(ids))]
				o.Prefix = []byte(id[:random.IntN(len(id)+1)])
			}
			if random.IntN(2) == 0 {
				id := ids[random.IntN(len(ids))]
				o.After = []byte(id[:random.IntN(len(id)+1)])
			}
			var expected []scanned
			for _, id := range ids {
				if strings.HasPrefix(id, string(o.Prefix)) && id > string(o.After) {
					expected = append(expected, scanned{id, want[id]})
					if o.IDsOnly {
						expected[len(expected)-1].document = ""
					}
				}
			}
			require.Equal(t, expected, pages(t, client, o), "%+v", o)
			require.Equal(t, expected, pages(t, client.Plain(), o), "%+v", o)
			if o.After == nil {
				count, err := c.Count(t.Context(), o.Prefix)
				require.NoError(t, err)
				require.EqualValues(t, len(expected), count)
			}
			if o.Limit > 0 {
				expected = expected[:min(o.Limit, len(expected))]
			}
			require.Equal(t, expected, scanAll(t, c, o), "%+v", o)
		}
	}
	maps.Copy(want, expires)
	check(20)
	f.clock.advance(2 * time.Hour)
	for id := range expires {
		delete(want, id)
	}
	check(50)
}

// A scan shows one moment in spite of concurrent changes, and returns fn's error.
func TestScanOfOneMoment(t *testing.T) {
	f := newMemFixture(t)
	last := f.putMany("a", 2*scanWindowIDs)
	c := f.ready()
	require.NoError(t, c.WaitFor(soon(t), last))
	shown := 0
	err := c.Scan(t.Context(), docservice.ScanOptions{}, func(id []byte, answer Answer) error {
		if shown == 0 {
			f.put("a-100", "changed")
			require.NoError(t, c.WaitFor(soon(t), f.put("b", "new")))
			requireDocument(t, c, "a-100", "changed")
		}
		require.NoError(t, answer.Err)
		require.Equal(t, documentOf(string(id)), string(answer.Document))
		shown++
		return nil
	})
	require.NoError(t, err)
	require.Equal(t, 2*scanWindowIDs, shown)

	enough := errors.New("enough")
	require.ErrorIs(t, c.Scan(t.Context(), docservice.ScanOptions{}, func([]byte, Answer) error { return enough }), enough)
	require.ErrorIs(t, c.Scan(t.Context(), docservice.ScanOptions{IDsOnly: true}, func([]byte, Answer) error { return enough }), enough)
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = c.Count(cancelled, nil)
	require.ErrorIs(t, err, context.Canceled)
	require.NoError(t, c.Close())
	_, err = c.Count(t.Context(), nil)
	require.ErrorIs(t, err, ErrClosed)
}

// A page has as many entries as fit into a response; large documents arrive one by one.
func TestScanPageCap(t *testing.T) {
	f := newMemFixture(t)
	var want []scanned
	for i, size := range []int{queue.MaxDocumentBytes, queue.MaxDocumentBytes, 1, queue.MaxDocumentBytes, 5 << 20, 5 << 20, 0} {
		id := fmt.Sprint(i)
		document := bytes.Repeat([]byte{byte('a' + i)}, size)
		_, err := f.queueWriter().Append([]byte(id), document)
		require.NoError(t, err)
		want = append(want, scanned{id, string(document)})
	}
	require.NoError(t, f.writer.Flush())
	c := f.ready()
	got := pages(t, dial(t, serve(t, c)), docservice.ScanOptions{})
	require.Len(t, got, len(want))
	for i := range want {
		require.True(t, want[i] == got[i], "document %d", i)
	}
}

// A document that one server lacks is read from another; one that all lack is reported
// unavailable, in order.
func TestClientScanAsksTheOtherServer(t *testing.T) {
	pool := dialPool(t, damagedCopies(t)...)
	client := docservice.NewClient(pool, "jobs")
	for pool.Stats().Transports < 2 {
		_, err := client.Get(soon(t), nil, "first-1")
		require.NoError(t, err)
	}
	var ids []string
	next, err := client.Scan(soon(t), docservice.ScanOptions{Prefix: []byte("second-")}, func(id string, document []byte, err error) error {
		ids = append(ids, id)
		if id == "second-30" {
			require.ErrorIs(t, err, docservice.ErrUnavailable)
			return nil
		}
		require.NoError(t, err)
		require.Equal(t, documentOf(id), string(document))
		return nil
	})
	require.NoError(t, err)
	require.Nil(t, next)
	require.Contains(t, ids, "second-30")
	require.True(t, slices.IsSorted(ids))
}

// A collection that is not ready returns no list.
func TestScanBeforeReady(t *testing.T) {
	f := newMemFixture(t) // no segment has arrived
	c := f.open()
	_, err := c.Count(t.Context(), nil)
	require.ErrorIs(t, err, docservice.ErrUnavailable)
	service := NewService(c)
	var response docservicepb.ScanResponse
	err = call(t, service, docservice.MethodScan, &docservicepb.ScanRequest{Collection: "jobs"}, &response)
	requireCode(t, err, boxcarrpc.CodeUnavailable)
	var failed *boxcarrpc.Error
	require.ErrorAs(t, err, &failed)
	assert.False(t, failed.Processed, "the next server is asked")
}

func TestServiceScanRefuses(t *testing.T) {
	f := newMemFixture(t)
	f.put("1", "{}")
	c := f.ready()
	service := NewService(c)
	var response docservicepb.ScanResponse
	requireCode(t, call(t, service, docservice.MethodScan, &docservicepb.ScanRequest{Collection: "nope"}, &response), boxcarrpc.CodeNotFound)
	requireCode(t, call(t, service, docservice.MethodScan, &docservicepb.ScanRequest{Collection: "jobs", Limit: docservice.MaxScanIDs + 1}, &response), boxcarrpc.CodeInvalidArgument)
	require.NoError(t, call(t, service, docservice.MethodScan, &docservicepb.ScanRequest{Collection: "jobs", Limit: docservice.MaxScanIDs}, &response))
	require.Len(t, response.GetEntries(), 1)
	require.Empty(t, response.GetNext())
	_, err := service.Handle(t.Context(), docservice.MethodScan, []byte{0xff}, nil)
	requireCode(t, err, boxcarrpc.CodeInvalidArgument)
	client := dial(t, serve(t, c))
	_, err = client.Scan(t.Context(), docservice.ScanOptions{Limit: docservice.MaxScanIDs + 1}, nil)
	require.ErrorContains(t, err, "4096")
}
