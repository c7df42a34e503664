package bucket_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"docstore/internal/crashtest"
	"docstore/internal/testseed"
	"docstore/queue/bucket"

	"github.com/stretchr/testify/require"
)

// faultProxy forwards connections to an S3 server and breaks them as told.
type faultProxy struct {
	target   string
	listener net.Listener
	wg       sync.WaitGroup

	mu    sync.Mutex
	conns map[net.Conn]bool
	// up and down are the bytes that the next connection forwards in each direction before
	// it is reset; negative: all. They hold for breaks connections.
	up, down, breaks int
}

func startProxy(t *testing.T, serverURL string) *faultProxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &faultProxy{target: serverURL[len("http://"):], listener: l, conns: map[net.Conn]bool{}, up: -1, down: -1}
	p.wg.Go(p.serve)
	t.Cleanup(func() {
		l.Close()
		p.closeAll()
		p.wg.Wait()
	})
	return p
}

func (p *faultProxy) url() string { return "http://" + p.listener.Addr().String() }

// breakNext lets the next n connections break after so many bytes, and closes the present
// ones.
func (p *faultProxy) breakNext(n, up, down int) {
	p.closeAll()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.breaks, p.up, p.down = n, up, down
}

func (p *faultProxy) closeAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		c.Close()
	}
	clear(p.conns)
}

func (p *faultProxy) serve() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", p.target)
		if err != nil {
			client.Close()
			continue
		}
		p.mu.Lock()
		up, down := -1, -1
		if p.breaks > 0 {
			p.breaks--
			up, down = p.up, p.down
		}
		p.conns[client], p.conns[server] = true, true
		p.mu.Unlock()
		p.wg.Go(func() { forward(server, client, up) })
		p.wg.Go(func() { forward(client, server, down) })
	}
}

// forward copies at most limit bytes, all if it is negative, and resets both connections.
func forward(to, from net.Conn, limit int) {
	var r io.Reader = from
	if limit >= 0 {
		r = io.LimitReader(from, int64(limit))
	}
	_, _ = io.Copy(to, r)
	for _, c := range []net.Conn{to, from} {
		_ = c.(*net.TCPConn).SetLinger(0)
		c.Close()
	}
}

const objectBytes = 1500

func proxyObject(i int) []byte {
	content := make([]byte, 0, objectBytes)
	for n := 0; len(content) < objectBytes; n++ {
		sum := sha256.Sum256(fmt.Appendf(nil, "%d/%d", i, n))
		content = append(content, sum[:]...)
	}
	return content[:objectBytes]
}

// forEachByte runs a test for every third k below limit (-short: every ninth), from a random one
// on, on several connections, each through its proxy.
func forEachByte(t *testing.T, limit int, test func(proxy *faultProxy, b *bucket.Client, k int) error) {
	const workers = 16
	stride := crashtest.Share(3, 1)
	server, first := startS3(t), testseed.Rand(t).IntN(stride)
	var wg sync.WaitGroup
	for w := range workers {
		proxy := startProxy(t, server)
		b := openS3(t, proxy.url(), bucket.Options{})
		wg.Go(func() {
			for k := first + w*stride; k < limit; k += workers * stride {
				if err := test(proxy, b, k); err != nil {
					t.Errorf("byte %d: %+v", k, err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// putObject puts an object of a name that only it uses: ErrExist means that an attempt
// created the object and its response was lost.
func putObject(t *testing.T, b bucket.Bucket, name string, content []byte) error {
	t.Helper()
	err := b.Put(t.Context(), name, bytes.NewReader(content), int64(len(content)))
	if errors.Is(err, bucket.ErrExist) {
		return nil
	}
	return err
}

// requireObject compares an object with its content.
func requireObject(t *testing.T, b bucket.Bucket, name string, want []byte) error {
	t.Helper()
	got, err := bucket.ReadAll(t.Context(), b, name, objectBytes)
	if err == nil && !bytes.Equal(got, want) {
		err = fmt.Errorf("%s differs from the bytes put", name)
	}
	return err
}

// TestPutResetAtEachByte resets the connection after k bytes of a PUT, or of its response.
// The object is whole when Put returns.
func TestPutResetAtEachByte(t *testing.T) {
	forEachByte(t, objectBytes+1000, func(proxy *faultProxy, b *bucket.Client, k int) error {
		for _, direction := range []string{"request", "response"} {
			name, content := fmt.Sprintf("put/%s/%d", direction, k), proxyObject(k)
			if direction == "request" {
				proxy.breakNext(1, k, -1)
			} else {
				proxy.breakNext(1, -1, k/8)
			}
			if err := putObject(t, b, name, content); err != nil {
				return err
			}
			if err := requireObject(t, b, name, content); err != nil {
				return err
			}
		}
		return nil
	})
}

// TestGetResetAtEachByte resets two connections in a row after k bytes of the response to a
// GET.
func TestGetResetAtEachByte(t *testing.T) {
	forEachByte(t, objectBytes+700, func(proxy *faultProxy, b *bucket.Client, k int) error {
		name, content := fmt.Sprintf("get/%d", k), proxyObject(k)
		if err := putObject(t, b, name, content); err != nil {
			return err
		}
		proxy.breakNext(2, -1, k)
		return requireObject(t, b, name, content)
	})
}

// statusServer fails requests before an S3 server sees them.
type statusServer struct {
	next http.Handler
	mu   sync.Mutex
	n    map[string]int // requests by method
	fail func(n int, r *http.Request) (status int, code string)
}

func (s *statusServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	method := r.Method + r.URL.Query().Get("list-type")
	s.n[method]++
	status, code := s.fail(s.n[method], r)
	s.mu.Unlock()
	if status == 0 {
		s.next.ServeHTTP(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	fmt.Fprintf(w, `<?xml version="1.0"?><Error><Code>%s</Code><Message>message</Message></Error>`, code)
}

// startStatusServer starts an S3 server that fails the requests that fail chooses; n counts
// the requests of a method.
func startStatusServer(t *testing.T, fail func(n int, r *http.Request) (status int, code string)) string {
	t.Helper()
	server := httptest.NewServer(&statusServer{next: s3Handler(t), n: map[string]int{}, fail: fail})
	t.Cleanup(server.Close)
	return server.URL
}

func TestTemporaryErrorsAreRepeated(t *testing.T) {
	for _, test := range []struct {
		status int
		code   string
	}{
		{500, "InternalError"}, {503, "SlowDown"}, {503, "ServiceUnavailable"}, {429, "TooManyRequests"}, {409, "ConditionalRequestConflict"}, {400, "RequestTimeout"},
	} {
		t.Run(test.code, func(t *testing.T) {
			b := openS3(t, startStatusServer(t, func(n int, r *http.Request) (int, string) {
				// The response to a HEAD has no body that could hold the code.
				if n == 1 && (test.status != 400 || r.Method != http.MethodHead) {
					return test.status, test.code
				}
				return 0, ""
			}), bucket.Options{})
			ctx, content := t.Context(), proxyObject(1)
			require.NoError(t, b.Put(ctx, "a", bytes.NewReader(content), objectBytes))
			got, err := bucket.ReadAll(ctx, b, "a", objectBytes)
			require.NoError(t, err)
			require.Equal(t, content, got)
			_, err = b.Head(ctx, "a")
			require.NoError(t, err)
			for _, err := range b.List(ctx, "", "") {
				require.NoError(t, err)
			}
			require.NoError(t, b.Delete(ctx, "a"))
			for _, op := range b.Stats().Operations {
				require.Equal(t, op.Requests-1, op.Retries, op.Operation)
				require.True(t, op.Retries == 1 || op.Operation == "head" && test.status == 400, op.Operation)
				require.Zero(t, op.Failures, op.Operation)
			}
		})
	}
}

func TestPermanentErrorsSayWhatToDo(t *testing.T) {
	for _, test := range []struct {
		status     int
		code       string
		want       error
		wantString string
	}{
		{403, "InvalidAccessKeyId", bucket.ErrDenied, "check the credentials"},
		{403, "SignatureDoesNotMatch", bucket.ErrDenied, "check the credentials"},
		{403, "AccessDenied", bucket.ErrDenied, "check the credentials"},
		{400, "ExpiredToken", bucket.ErrDenied, "check the credentials"},
		{403, "RequestTimeTooSkewed", bucket.ErrClockSkew, "synchronize the clock"},
		{404, "NoSuchBucket", bucket.ErrNoBucket, "create bucket docs"},
		{501, "NotImplemented", nil, "NotImplemented"},
		{400, "InvalidRequest", nil, "InvalidRequest"},
	} {
		t.Run(test.code, func(t *testing.T) {
			b := openS3(t, startStatusServer(t, func(int, *http.Request) (int, string) { return test.status, test.code }), bucket.Options{})
			_, err := bucket.Check(t.Context(), b)
			if test.want != nil {
				require.ErrorIs(t, err, test.want)
			}
			require.ErrorContains(t, err, test.wantString)
			require.EqualValues(t, 1, b.Stats().Operations[1].Requests, "it is not repeated")
		})
	}
}

func TestMissingCredentialsAreDenied(t *testing.T) {
	b := openS3(t, startS3(t), bucket.Options{})
	_ = b
	t.Setenv("AWS_ACCESS_KEY_ID", "")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "")
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	anonymous, err := bucket.Open(t.Context(), "s3://docs/jobs", bucket.Options{Endpoint: "http://127.0.0.1:1", PathStyle: true})
	require.NoError(t, err)
	_, err = anonymous.Head(t.Context(), "a")
	require.ErrorIs(t, err, bucket.ErrDenied)
	require.ErrorContains(t, err, "AWS_ACCESS_KEY_ID")
}

func TestAnUnreachableStoreIsReportedAfterTheTimeout(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	l.Close()
	b := openS3(t, "http://"+l.Addr().String(), bucket.Options{Timeout: 300 * time.Millisecond})
	_, err = b.Head(t.Context(), "a")
	require.ErrorContains(t, err, "given up after 300ms")
	require.ErrorContains(t, err, "refused")
}
