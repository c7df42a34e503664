package wire

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"docstore/docservice/docservicepb"
)

func marshal(t testing.TB, m proto.Message) []byte {
	t.Helper()
	b, err := proto.Marshal(m)
	require.NoError(t, err)
	return b
}

// FuzzDecodeRequest: the decoders accept the same bytes as the generated code, with the
// same result.
func FuzzDecodeRequest(f *testing.F) {
	f.Add([]byte{})
	f.Add(marshal(f, &docservicepb.GetRequest{Collection: "jobs", Id: []byte("1")}))
	f.Add(marshal(f, &docservicepb.BatchGetRequest{Collection: "jobs", Ids: [][]byte{[]byte("1"), {}, []byte("\xff")}}))
	f.Add([]byte("\x0a\x01a\x12\x01b\x0a\x01c\x12\x01d\x1a\x00")) // fields twice, and an unknown one
	f.Add([]byte("\x0a\x01\xff"))                                 // a name that is not UTF-8
	f.Add([]byte("\x08\x01\x10\x02"))                             // our numbers with another type
	f.Add([]byte("\x12\xff\xff\xff\xff\x0f"))                     // a length beyond the end
	f.Add([]byte("\x13\x14"))                                     // a group
	f.Add(marshal(f, &docservicepb.GetRequest{Collection: "jobs", Id: []byte("1"), Accept: 1<<32 - 1}))
	f.Add([]byte("\x18\xff\xff\xff\xff\xff\x01")) // codecs beyond 32 bits
	f.Fuzz(func(t *testing.T, b []byte) {
		var get docservicepb.GetRequest
		want := proto.Unmarshal(b, &get)
		asked, id, err := DecodeGetRequest(b)
		require.Equal(t, want == nil, err == nil, "GetRequest: generated code: %v, ours: %v", want, err)
		if err == nil {
			assert.Equal(t, get.GetCollection(), string(asked.Collection))
			assert.Equal(t, get.GetAccept(), uint32(asked.Accept))
			assert.Equal(t, string(get.GetId()), string(id))
		} else {
			require.ErrorIs(t, err, ErrMalformed)
		}

		var batch docservicepb.BatchGetRequest
		want = proto.Unmarshal(b, &batch)
		asked, ids, err := DecodeBatchGetRequest(nil, b)
		require.Equal(t, want == nil, err == nil, "BatchGetRequest: generated code: %v, ours: %v", want, err)
		if err == nil {
			assert.Equal(t, batch.GetCollection(), string(asked.Collection))
			assert.Equal(t, batch.GetAccept(), uint32(asked.Accept))
			require.Len(t, ids, len(batch.GetIds()))
			for i, id := range batch.GetIds() {
				assert.Equal(t, string(id), string(ids[i]))
			}
		}
	})
}

// FuzzDecodeResponse: the same for the responses that a client decodes.
func FuzzDecodeResponse(f *testing.F) {
	f.Add([]byte{})
	f.Add(marshal(f, &docservicepb.GetResponse{Status: docservicepb.Status_STATUS_FOUND, Document: []byte("{}")}))
	f.Add(marshal(f, &docservicepb.BatchGetResponse{LeftOut: 3, Answers: []*docservicepb.BatchGetResponse_Answer{
		{Status: docservicepb.Status_STATUS_FOUND, Document: []byte("{}")},
		{Status: docservicepb.Status_STATUS_UNAVAILABLE},
		{Status: docservicepb.Status_STATUS_FOUND, Stored: []byte("stored")},
	}}))
	f.Add(marshal(f, &docservicepb.GetResponse{Status: docservicepb.Status_STATUS_FOUND, Stored: []byte("stored")}))
	f.Fuzz(func(t *testing.T, b []byte) {
		var get docservicepb.GetResponse
		want := proto.Unmarshal(b, &get)
		a, err := DecodeAnswer(b)
		require.Equal(t, want == nil, err == nil, "GetResponse: generated code: %v, ours: %v", want, err)
		if err == nil {
			assert.Equal(t, get.GetStatus(), a.Status)
			assert.Equal(t, string(get.GetDocument()), string(a.Document))
			// An empty stored form, which no server sends, cannot be decoded; the generated
			// code treats it as absent, which would mean an empty document.
			assert.Equal(t, string(get.GetStored()), string(a.Stored))
		}

		var batch docservicepb.BatchGetResponse
		want = proto.Unmarshal(b, &batch)
		var answers []*docservicepb.BatchGetResponse_Answer
		leftOut, err := DecodeBatchGetResponse(b, func(a Answer) error {
			answers = append(answers, &docservicepb.BatchGetResponse_Answer{Status: a.Status, Document: a.Document, Stored: a.Stored})
			return nil
		})
		require.Equal(t, want == nil, err == nil, "BatchGetResponse: generated code: %v, ours: %v", want, err)
		if err == nil {
			assert.Equal(t, batch.GetLeftOut(), leftOut)
			require.Len(t, answers, len(batch.GetAnswers()))
			for i, answer := range batch.GetAnswers() {
				assert.Equal(t, answer.GetStatus(), answers[i].GetStatus())
				assert.Equal(t, string(answer.GetDocument()), string(answers[i].GetDocument()))
				assert.Equal(t, string(answer.GetStored()), string(answers[i].GetStored()))
			}
		}
	})
}

func TestRequestsEqualGeneratedCode(t *testing.T) {
	b := AppendID(AppendCollection(nil, "jobs"), "1")
	assert.Equal(t, marshal(t, &docservicepb.GetRequest{Collection: "jobs", Id: []byte("1")}), b)
	assert.Equal(t, marshal(t, &docservicepb.GetRequest{Collection: "jobs", Id: []byte("1"), Accept: 14}), AppendAccept(bytes.Clone(b), 14))
	b = AppendID(AppendAccept(b, 0), "2")
	assert.Equal(t, marshal(t, &docservicepb.BatchGetRequest{Collection: "jobs", Ids: [][]byte{[]byte("1"), []byte("2")}}), b)
}

// The length of a document takes one to four bytes, and two are reserved: the document must
// be intact around each boundary.
func TestFoundResponseOfEachLengthOfLength(t *testing.T) {
	for _, size := range []int{0, 1, 127, 128, 129, 1<<14 - 1, 1 << 14, 1<<14 + 1, 1<<21 - 1, 1 << 21, 16 << 20} {
		document := bytes.Repeat([]byte{0xa5, 1, 2}, size/3+1)[:size]
		prefix := []byte("before")
		b := BeginFound(prefix)
		b = append(b, document...)
		b = EndFound(b, len(prefix), false)
		require.Equal(t, "before", string(b[:len(prefix)]))
		var response docservicepb.GetResponse
		require.NoError(t, proto.Unmarshal(b[len(prefix):], &response), "size=%d", size)
		assert.Equal(t, docservicepb.Status_STATUS_FOUND, response.GetStatus())
		assert.True(t, bytes.Equal(document, response.GetDocument()), "size=%d", size)
		assert.Nil(t, response.GetStored())

		b = EndFound(append(BeginFound(nil), document...), 0, true)
		var stored docservicepb.GetResponse
		require.NoError(t, proto.Unmarshal(b, &stored), "size=%d", size)
		assert.True(t, bytes.Equal(document, stored.GetStored()), "size=%d", size)
		assert.Nil(t, stored.GetDocument())
		b = EndFound(append(BeginFound(prefix), document...), len(prefix), false)
		if size > 0 { // proto.Marshal omits an empty document
			assert.True(t, bytes.Equal(marshal(t, &response), b[len(prefix):]), "size=%d", size)
		}
	}
}

func TestAnswersEqualGeneratedCode(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	want := &docservicepb.BatchGetResponse{LeftOut: 7}
	var b []byte
	for i := range 200 {
		document := []byte(strings.Repeat("x", 1+random.IntN(200*(1+i%100))))
		status, asStored := docservicepb.Status_STATUS_FOUND, false
		expected := &docservicepb.BatchGetResponse_Answer{}
		switch i % 5 {
		case 0:
			expected.Document = document
		case 1:
			asStored, expected.Stored = true, document
		case 2:
			status = docservicepb.Status_STATUS_NOT_FOUND
		case 3:
			status = docservicepb.Status_STATUS_UNAVAILABLE
		case 4:
			status = docservicepb.Status_STATUS_ERROR
		}
		expected.Status = status
		want.Answers = append(want.Answers, expected)
		if start := len(b); status == docservicepb.Status_STATUS_FOUND {
			b = EndAnswer(append(BeginAnswer(b), document...), start, asStored)
		} else {
			b = AppendAnswerStatus(b, status)
		}
	}
	b = AppendLeftOut(b, 7)
	assert.True(t, bytes.Equal(marshal(t, want), b))
}
