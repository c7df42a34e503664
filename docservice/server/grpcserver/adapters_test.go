package grpcserver

import (
	"context"
	"encoding/json"
	"errors"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"docstore/boxcarrpc"
	"docstore/boxcarrpc/discovery"
	"docstore/docservice"
	"docstore/docservice/docservicegrpc"
	"docstore/docservice/docservicepb"
	"docstore/internal/servertest"
	"docstore/queue"
	"docstore/queue/shard"
)

// The adapters give the same answers. Each returns the document, or a word for the error.
func TestAdaptersAgree(t *testing.T) {
	dir := t.TempDir()
	large := strings.Repeat("0123456789", 1<<19)
	servertest.Fill(t, dir, "a", `{"id":"a"}`, "large", large, "gone", "{}", "gone", "", "bad", `{"id":"bad","x":"bbbbbbbb"}`)
	w, err := queue.OpenWriter(dir, nil)
	require.NoError(t, err)
	_, err = w.Put(queue.Record{ID: []byte("empty"), Document: []byte{}})
	require.NoError(t, err)
	_, err = w.Put(queue.Record{ID: []byte("expired"), Document: []byte("{}"), Expires: time.Now().Add(-time.Hour)})
	require.NoError(t, err)
	require.NoError(t, w.Close())
	servertest.FlipByte(t, dir, "bbbbbbbb")

	o := testOptions(t, dir)
	o.grpc = "127.0.0.1:0"
	d, _ := startTestDaemon(t, o)
	waitReady(t, d)
	d.Service().Authorize(func(_ context.Context, collection string) error {
		if collection == "secret" {
			return errors.New("not for you")
		}
		return nil
	})
	d.Service().Divide("elsewhere", shard.Layout{Shards: 2, Seed: 1})
	conn, err := grpc.NewClient(d.grpc.listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(docservice.MaxReplyBytes)))
	require.NoError(t, err)
	defer conn.Close()
	pool, err := boxcarrpc.NewPool(discovery.Static(d.BoxcarAddress()), nil)
	require.NoError(t, err)
	defer pool.Close()

	adapters := map[string]func(collection, id string) string{
		"http": func(collection, id string) string {
			r := servertest.Get(d.HTTPHandler(), "/documents/"+collection+"/"+url.PathEscape(id))
			if r.Code == 200 {
				return r.Body.String()
			}
			var body struct{ Error struct{ Code string } }
			require.NoError(t, json.Unmarshal(r.Body.Bytes(), &body))
			return body.Error.Code
		},
		"boxcar": func(collection, id string) string { return ofClient(docservice.NewClient(pool, collection), id) },
		"boxcar, plain": func(collection, id string) string {
			return ofClient(docservice.NewClient(pool, collection).Plain(), id)
		},
		"grpc": func(collection, id string) string {
			r, err := docservicegrpc.NewDocumentsClient(conn).Get(servertest.Shortly(t), &docservicepb.GetRequest{Collection: collection, Id: []byte(id)})
			if err != nil {
				return map[codes.Code]string{
					codes.NotFound: "no_collection", codes.PermissionDenied: "forbidden", codes.InvalidArgument: "invalid_argument", codes.Unavailable: "unavailable",
				}[status.Code(err)]
			}
			if r.GetStatus() == docservicepb.Status_STATUS_FOUND {
				return string(r.GetDocument())
			}
			return strings.ToLower(strings.TrimPrefix(r.GetStatus().String(), "STATUS_"))
		},
	}
	for _, c := range []struct{ collection, id, want string }{
		{"jobs", "a", `{"id":"a"}`},
		{"jobs", "large", large},
		{"jobs", "empty", ""},
		{"jobs", "none", "not_found"},
		{"jobs", "gone", "not_found"},
		{"jobs", "expired", "not_found"},
		{"jobs", "bad", "unavailable"},
		{"jobs", strings.Repeat("i", queue.MaxIDBytes+1), "invalid_argument"},
		{"none", "a", "no_collection"},
		{"secret", "a", "forbidden"},
		{"elsewhere", "a", "moved"},
	} {
		for name, get := range adapters {
			assert.Equal(t, c.want, get(c.collection, c.id), "%s: %s/%.20s", name, c.collection, c.id)
		}
	}
}

func ofClient(client *docservice.Client, id string) string {
	document, err := client.Get(context.Background(), nil, id)
	switch {
	case err == nil:
		return string(document)
	case errors.Is(err, docservice.ErrNoCollection):
		return "no_collection"
	case errors.Is(err, docservice.ErrBadID):
		return "invalid_argument"
	case boxcarrpc.CodeOf(err) == boxcarrpc.CodePermissionDenied:
		return "forbidden"
	}
	return docservice.AnswerCode(err)
}
