package collection

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"docstore/boxcarrpc"
	"docstore/docservice"
	"docstore/docservice/docservicepb"
	"docstore/docservice/internal/wire"
	"docstore/internal/jobs"
	"docstore/internal/vfs"
	"docstore/queue"
	"docstore/queue/codec"
)

// compressedDocuments is enough to train and use a dictionary: the writer trains one after
// 2 MiB.
const compressedDocuments = 3_500

// compressedQueue holds the files of a queue of generated jobs, the last file open. The
// later documents need a dictionary. It must not be modified.
type compressedQueue struct {
	files     map[string][]byte
	documents map[string][]byte
}

// compressedQueues are made once for each codec, by the first test that needs one: training
// is slow under the race detector.
var compressedQueues = func() map[string]func(testing.TB) *compressedQueue {
	queues := map[string]func(testing.TB) *compressedQueue{}
	for _, codec := range codec.Names() {
		var once sync.Once
		var made *compressedQueue
		queues[codec] = func(t testing.TB) *compressedQueue {
			once.Do(func() { made = newCompressedQueue(t, codec) })
			require.NotNil(t, made, "an earlier test failed to make it")
			return made
		}
	}
	return queues
}()

func newCompressedQueue(t testing.TB, codec string) *compressedQueue {
	q := &compressedQueue{files: map[string][]byte{}, documents: map[string][]byte{}}
	f := newMemFixture(t)
	writer, err := queue.OpenWriter(f.queueDir, &queue.WriterOptions{FS: f.fs, Codec: codec, Now: f.clock.Now})
	require.NoError(t, err)
	defer writer.Close()
	postings := jobs.New(1)
	for i := range compressedDocuments {
		id, document := jobs.ID(i+1), postings.Next()
		q.documents[id] = document
		_, err := writer.Append([]byte(id), document)
		require.NoError(t, err)
	}
	require.NoError(t, writer.Flush())
	names, err := f.fs.List(f.queueDir)
	require.NoError(t, err)
	for _, name := range names {
		if _, ok := queue.ParseFileName(name); ok {
			q.files[name], err = vfs.ReadFile(f.fs, filepath.Join(f.queueDir, name))
			require.NoError(t, err)
		}
	}
	return q
}

// compressedFixture returns a fixture with a copy of that queue.
func compressedFixture(t testing.TB, codec string) (f *fixture, documents map[string][]byte) {
	q := compressedQueues[codec](t)
	f = newMemFixture(t)
	f.bring(q.files)
	return f, q.documents
}

// lastID is the id of a document that needs a dictionary.
var lastID = jobs.ID(compressedDocuments)

// between counts the calls of a service by method, and may modify responses.
type between struct {
	handler  boxcarrpc.Handler
	calls    sync.Map // method: *atomic.Int64
	response func(method string, body []byte) ([]byte, error)
}

func (b *between) handle(ctx context.Context, method string, request, dst []byte) ([]byte, error) {
	counter, _ := b.calls.LoadOrStore(method, new(atomic.Int64))
	counter.(*atomic.Int64).Add(1)
	body, err := b.handler(ctx, method, request, nil)
	if err == nil && b.response != nil {
		body, err = b.response(method, body)
	}
	return append(dst, body...), err
}

func (b *between) count(method string) int64 {
	counter, ok := b.calls.Load(method)
	if !ok {
		return 0
	}
	return counter.(*atomic.Int64).Load()
}

func TestDocumentsAreTransferredStored(t *testing.T) {
	for _, codec := range codec.Names() {
		t.Run(codec, func(t *testing.T) {
			f, documents := compressedFixture(t, codec)
			var plain, stored atomic.Int64
			service := &between{handler: NewService(f.ready()).Handle}
			service.response = func(method string, body []byte) ([]byte, error) {
				if method == docservice.MethodGet {
					a, err := wire.DecodeAnswer(body)
					assert.NoError(t, err)
					stored.Add(int64(len(a.Stored)))
					plain.Add(int64(len(a.Document)))
				}
				return body, nil
			}
			client := dial(t, serveHandler(t, service.handle, nil))
			ctx := soon(t)
			var running sync.WaitGroup
			for caller := range 4 {
				running.Go(func() {
					var got []byte
					for i := caller; i < compressedDocuments; i += 97 {
						id := jobs.ID(i + 1)
						var err error
						got, err = client.Get(ctx, append(got[:0], "before"...), id)
						if assert.NoError(t, err) {
							assert.Equal(t, "before"+string(documents[id]), string(got))
						}
					}
				})
			}
			running.Wait()
			require.Zero(t, plain.Load())
			require.NotZero(t, stored.Load())
			ids := []string{"none", lastID, jobs.ID(1), lastID, ""}
			check := func(client *docservice.Client) {
				t.Helper()
				err := client.GetMany(ctx, ids, func(i int, document []byte, err error) error {
					switch i {
					case 0:
						assert.ErrorIs(t, err, docservice.ErrNotFound)
					case 4:
						assert.ErrorIs(t, err, docservice.ErrBadID)
					default:
						assert.NoError(t, err)
						assert.Equal(t, string(documents[ids[i]]), string(document))
					}
					return nil
				})
				require.NoError(t, err)
			}
			check(client)
			wanted := int64(0)
			if codec == "s2" || codec == "zstd" {
				wanted = 1
			}
			assert.Equal(t, wanted, service.count(docservice.MethodDictionary), "a dictionary is fetched once")

			before := stored.Load()
			got, err := client.Plain().Get(ctx, nil, lastID)
			require.NoError(t, err)
			require.Equal(t, string(documents[lastID]), string(got))
			check(client.Plain())
			require.Equal(t, before, stored.Load())
		})
	}
}

// If the client cannot decode a document, the server decodes it; invalid responses are
// errors.
func TestClientWithoutUsableDictionary(t *testing.T) {
	f, documents := compressedFixture(t, "s2")
	c := f.ready()
	for name, response := range map[string]func(method string, body []byte) ([]byte, error){
		"no such method": func(method string, body []byte) ([]byte, error) {
			if method == docservice.MethodDictionary {
				return nil, &boxcarrpc.Error{Code: boxcarrpc.CodeUnimplemented, Processed: true}
			}
			return body, nil
		},
		"wrong bytes": func(method string, body []byte) ([]byte, error) {
			if method == docservice.MethodDictionary {
				body[len(body)/2] ^= 1
			}
			return body, nil
		},
		"malformed": func(method string, body []byte) ([]byte, error) {
			if method == docservice.MethodDictionary {
				return body[:len(body)-1], nil
			}
			return body, nil
		},
		"newer version": func(method string, body []byte) ([]byte, error) {
			if a, err := wire.DecodeAnswer(body); method == docservice.MethodGet && err == nil && a.Stored != nil {
				a.Stored[19] = 1 // part of body
			}
			return body, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			service := &between{handler: NewService(c).Handle, response: response}
			client := dial(t, serveHandler(t, service.handle, nil))
			got, err := client.Get(soon(t), []byte("before"), lastID)
			require.NoError(t, err)
			require.Equal(t, "before"+string(documents[lastID]), string(got))
			require.EqualValues(t, 2, service.count(docservice.MethodGet), "as stored, then plain")
			if name == "newer version" {
				return
			}
			ids := []string{jobs.ID(1), lastID, "none"}
			err = client.GetMany(soon(t), ids, func(i int, document []byte, err error) error {
				if ids[i] == "none" {
					require.ErrorIs(t, err, docservice.ErrNotFound)
					return nil
				}
				require.NoError(t, err)
				require.Equal(t, string(documents[ids[i]]), string(document))
				return nil
			})
			require.NoError(t, err)
		})
	}
}

// For every modified byte of a response the result is an error or the right document. (One
// bit makes a plain document of a stored one; Boxcar's checksum detects that.)
func TestClientVerifiesStoredForm(t *testing.T) {
	f := newMemFixture(t)
	f.put("1", "the document of 1")
	f.put("2", "the document of 2")
	service := &between{handler: NewService(f.ready()).Handle}
	client := dial(t, serveHandler(t, service.handle, nil))
	ctx := soon(t)
	request := wire.AppendAccept(wire.AppendID(wire.AppendCollection(nil, "jobs"), "1"), codec.Built())
	good, err := service.handler(ctx, docservice.MethodGet, request, nil)
	require.NoError(t, err)
	for i := range good {
		for _, flip := range []byte{1, 0x10, 0xff} {
			service.response = func(_ string, body []byte) ([]byte, error) {
				if len(body) == len(good) { // not the plain bytes requested afterwards
					body[i] ^= flip
				}
				return body, nil
			}
			got, err := client.Get(ctx, []byte("before"), "1")
			if err == nil {
				require.Equal(t, "beforethe document of 1", string(got), "byte %d", i)
			} else {
				require.Equal(t, "before", string(got))
			}
		}
	}
	// A valid stored form of another document.
	other, err := service.handler(ctx, docservice.MethodGet, wire.AppendAccept(wire.AppendID(wire.AppendCollection(nil, "jobs"), "2"), codec.Built()), nil)
	require.NoError(t, err)
	service.response = func(string, []byte) ([]byte, error) { return other, nil }
	_, err = client.Get(ctx, nil, "1")
	require.ErrorIs(t, err, docservice.ErrMalformed)
	a, err := wire.DecodeAnswer(other)
	require.NoError(t, err)
	batch := wire.EndAnswer(append(wire.BeginAnswer(nil), a.Stored...), 0, true)
	service.response = func(string, []byte) ([]byte, error) { return batch, nil }
	err = client.GetMany(ctx, []string{"1"}, func(int, []byte, error) error {
		return fmt.Errorf("fn must not be called")
	})
	require.ErrorIs(t, err, docservice.ErrMalformed)
	// The server sends a stored form although plain bytes were requested.
	_, err = client.Plain().Get(ctx, nil, "1")
	require.ErrorIs(t, err, docservice.ErrMalformed)
}

func TestServiceDictionary(t *testing.T) {
	f, _ := compressedFixture(t, "s2")
	service := NewService(f.ready())
	ask := func(collection string, hash []byte) ([]byte, error) {
		request, err := proto.Marshal(&docservicepb.DictionaryRequest{Collection: collection, Hash: hash})
		require.NoError(t, err)
		return service.Handle(t.Context(), docservice.MethodDictionary, request, []byte("before"))
	}
	for _, test := range []struct {
		collection string
		hash       []byte
		code       boxcarrpc.Code
		processed  bool
	}{
		{"jobs", make([]byte, 16), boxcarrpc.CodeUnavailable, false},
		{"jobs", make([]byte, 15), boxcarrpc.CodeInvalidArgument, true},
		{"nope", make([]byte, 16), boxcarrpc.CodeNotFound, true},
	} {
		body, err := ask(test.collection, test.hash)
		require.Equal(t, test.code, boxcarrpc.CodeOf(err))
		require.Equal(t, "before", string(body))
		var failure *boxcarrpc.Error
		require.ErrorAs(t, err, &failure)
		require.Equal(t, test.processed, failure.Processed)
	}
	_, err := service.Handle(t.Context(), docservice.MethodDictionary, []byte{0xff}, nil)
	require.Equal(t, boxcarrpc.CodeInvalidArgument, boxcarrpc.CodeOf(err))
}
