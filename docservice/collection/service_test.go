package collection

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"docstore/boxcarrpc"
	"docstore/docservice"
	"docstore/docservice/docservicepb"
)

// call calls the service and decodes the response with the generated code.
func call(t *testing.T, s *Service, method string, request, response proto.Message) error {
	t.Helper()
	body, err := s.Handle(t.Context(), method, marshal(t, request), []byte("before"))
	require.Equal(t, "before", string(body[:6]))
	if err != nil {
		require.Len(t, body, 6, "dst is unchanged on error")
		return err
	}
	require.NoError(t, proto.Unmarshal(body[6:], response))
	return nil
}

func requireCode(t *testing.T, err error, code boxcarrpc.Code) {
	t.Helper()
	var failed *boxcarrpc.Error
	require.ErrorAs(t, err, &failed)
	require.Equal(t, code, failed.Code, failed.Message)
	require.Equal(t, code != boxcarrpc.CodeUnavailable, failed.Processed, "only what another server may answer is not processed")
}

func TestServiceGet(t *testing.T) {
	f, path, good := sealedFixture(t)
	replace(t, f.fs, path, flipped(t, good, documentOf("second-50")))
	s := NewService(f.ready())

	get := func(id string) (*docservicepb.GetResponse, error) {
		var response docservicepb.GetResponse
		err := call(t, s, docservice.MethodGet, &docservicepb.GetRequest{Collection: "jobs", Id: []byte(id)}, &response)
		return &response, err
	}
	response, err := get("first-1")
	require.NoError(t, err)
	assert.Equal(t, docservicepb.Status_STATUS_FOUND, response.GetStatus())
	assert.Equal(t, documentOf("first-1"), string(response.GetDocument()))

	response, err = get("none")
	require.NoError(t, err, "a missing document does not fail the call")
	assert.Equal(t, docservicepb.Status_STATUS_NOT_FOUND, response.GetStatus())

	_, err = get("second-50")
	requireCode(t, err, boxcarrpc.CodeUnavailable)
	_, err = get("")
	requireCode(t, err, boxcarrpc.CodeInvalidArgument)

	err = call(t, s, docservice.MethodGet, &docservicepb.GetRequest{Collection: "nope", Id: []byte("1")}, nil)
	requireCode(t, err, boxcarrpc.CodeNotFound)
	assert.Contains(t, err.Error(), "jobs", "the error lists the collections")
	err = call(t, s, "/docstore.v1.Documents/Put", &docservicepb.GetRequest{}, nil)
	requireCode(t, err, boxcarrpc.CodeUnimplemented)
	for _, method := range []string{docservice.MethodGet, docservice.MethodBatchGet, docservice.MethodStats} {
		_, err = s.Handle(t.Context(), method, []byte("\xff\xff"), nil)
		requireCode(t, err, boxcarrpc.CodeInvalidArgument)
	}
}

func TestServiceBatchGet(t *testing.T) {
	f, path, good := sealedFixture(t)
	replace(t, f.fs, path, flipped(t, good, documentOf("second-50")))
	c := f.ready()
	s := NewService(c)

	batch := func(ids ...string) (*docservicepb.BatchGetResponse, error) {
		request := &docservicepb.BatchGetRequest{Collection: "jobs"}
		for _, id := range ids {
			request.Ids = append(request.Ids, []byte(id))
		}
		var response docservicepb.BatchGetResponse
		err := call(t, s, docservice.MethodBatchGet, request, &response)
		return &response, err
	}
	response, err := batch("second-1", "none", "second-50", "", "first-1")
	require.NoError(t, err)
	assert.Zero(t, response.GetLeftOut())
	var statuses []docservicepb.Status
	for _, answer := range response.GetAnswers() {
		statuses = append(statuses, answer.GetStatus())
	}
	assert.Equal(t, []docservicepb.Status{
		docservicepb.Status_STATUS_FOUND,
		docservicepb.Status_STATUS_NOT_FOUND,
		docservicepb.Status_STATUS_UNAVAILABLE,
		docservicepb.Status_STATUS_ERROR,
		docservicepb.Status_STATUS_FOUND,
	}, statuses)
	assert.Equal(t, documentOf("second-1"), string(response.GetAnswers()[0].GetDocument()))
	assert.Equal(t, documentOf("first-1"), string(response.GetAnswers()[4].GetDocument()))

	_, err = batch("second-50", "second-50")
	requireCode(t, err, boxcarrpc.CodeUnavailable)
	response, err = batch()
	require.NoError(t, err)
	assert.Empty(t, response.GetAnswers())
	_, err = batch(make([]string, docservice.MaxBatchIDs+1)...)
	requireCode(t, err, boxcarrpc.CodeInvalidArgument)

	require.NoError(t, c.Close())
	_, err = batch("first-1")
	requireCode(t, err, boxcarrpc.CodeUnavailable)
}

func TestServiceBatchGetUpToTheCap(t *testing.T) {
	f := newMemFixture(t)
	const size, n = 1 << 20, docservice.MaxReplyBytes>>20 + 2
	request := &docservicepb.BatchGetRequest{Collection: "jobs"}
	for i := range n {
		id := fmt.Sprint(i)
		_, err := f.queueWriter().Append([]byte(id), bytes.Repeat([]byte{byte(i)}, size))
		require.NoError(t, err)
		request.Ids = append(request.Ids, []byte(id))
	}
	require.NoError(t, f.writer.Flush())
	s := NewService(f.ready())

	body, err := s.Handle(t.Context(), docservice.MethodBatchGet, marshal(t, request), nil)
	require.NoError(t, err)
	assert.LessOrEqual(t, len(body), docservice.MaxReplyBytes)
	var response docservicepb.BatchGetResponse
	require.NoError(t, proto.Unmarshal(body, &response))
	assert.Len(t, response.GetAnswers(), docservice.MaxReplyBytes/size-1, "as many as fit with their overhead")
	assert.Equal(t, n, len(response.GetAnswers())+int(response.GetLeftOut()))
	for i, answer := range response.GetAnswers() {
		assert.Len(t, answer.GetDocument(), size)
		assert.Equal(t, byte(i), answer.GetDocument()[size-1])
	}
}

func TestServiceOfSeveralCollections(t *testing.T) {
	jobs, people := newMemFixture(t), newMemFixture(t)
	jobs.put("1", "a job")
	people.put("1", "a person")
	a := jobs.ready()
	b, err := Open("people", people.queueDir, people.dir, &people.options)
	require.NoError(t, err)
	t.Cleanup(func() { b.Close() })
	require.NoError(t, b.WaitReady(soon(t)))
	s := NewService(b, a)
	assert.Panics(t, func() { NewService(a, a) })

	for name, want := range map[string]string{"jobs": "a job", "people": "a person"} {
		var response docservicepb.GetResponse
		require.NoError(t, call(t, s, docservice.MethodGet, &docservicepb.GetRequest{Collection: name, Id: []byte("1")}, &response))
		assert.Equal(t, want, string(response.GetDocument()))
	}

	var stats docservicepb.StatsResponse
	require.NoError(t, call(t, s, docservice.MethodStats, &docservicepb.StatsRequest{}, &stats))
	require.Len(t, stats.GetCollections(), 2)
	assert.Equal(t, "jobs", stats.GetCollections()[0].GetName())
	assert.Equal(t, "people", stats.GetCollections()[1].GetName())

	require.NoError(t, call(t, s, docservice.MethodStats, &docservicepb.StatsRequest{Collection: "people"}, &stats))
	require.Len(t, stats.GetCollections(), 1)
	one := stats.GetCollections()[0]
	assert.True(t, one.GetReady())
	assert.Len(t, one.GetPosition().GetQueueId(), 16)
	assert.Equal(t, uint32(1), one.GetPosition().GetSegment())
	assert.Equal(t, uint64(1), one.GetSegmentDocuments())
	assert.Equal(t, uint64(1), one.GetEntriesApplied())
	assert.Equal(t, uint64(1), one.GetGetsFound())
	assert.Positive(t, one.GetIndexBytes())

	err = call(t, s, docservice.MethodStats, &docservicepb.StatsRequest{Collection: "nope"}, nil)
	requireCode(t, err, boxcarrpc.CodeNotFound)
}

func marshal(t testing.TB, m proto.Message) []byte {
	t.Helper()
	b, err := proto.Marshal(m)
	require.NoError(t, err)
	return b
}

// An answer without a document is on the wire what the client makes an error of again.
func TestAnswerStatus(t *testing.T) {
	for status, err := range map[docservicepb.Status]error{
		docservicepb.Status_STATUS_FOUND:       nil,
		docservicepb.Status_STATUS_NOT_FOUND:   docservice.ErrNotFound,
		docservicepb.Status_STATUS_UNAVAILABLE: gapNotRead.err,
		docservicepb.Status_STATUS_ERROR:       docservice.ErrBadID,
	} {
		assert.Equal(t, status, Answer{Err: err}.Status(), "%v", err)
	}
}
