package e2e

import (
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/internal/crashtest"
	"docstore/internal/ctxtime"
	"docstore/internal/freeport"
	"docstore/internal/testprocess"
	"docstore/internal/testprogram"
)

// s3Program is the S3 server that scripts/setup builds.
const s3Program = "versitygw-v1.8.0"

// s3Server is an S3 server with a bucket named "docs", behind a proxy.
type s3Server struct {
	flags []string // of commands that use it
	dir   string   // of the bucket: each object is a file
	pid   int

	server  *os.Process
	address string // of the server, behind the proxy

	gets atomic.Int64 // requests for files of manifests
	away atomic.Bool  // the proxy closes connections
	wait atomic.Int64 // pause in nanoseconds before each request
}

func startS3(t testing.TB) *s3Server {
	t.Helper()
	return startS3In(t, t.TempDir())
}

// startS3In is startS3 with a directory, which can have the bucket of an earlier server.
func startS3In(t testing.TB, root string) *s3Server {
	t.Helper()
	address := freeport.Address(t)
	s := &s3Server{dir: filepath.Join(root, "docs")}
	require.NoError(t, os.MkdirAll(s.dir, 0o700))
	const user, secret = "test", "secret"
	command := exec.Command(testprogram.Path(t, s3Program), "--quiet", "--health", "/health", "--port", address, "posix", root)
	command.Env = append(os.Environ(), "ROOT_ACCESS_KEY="+user, "ROOT_SECRET_KEY="+secret)
	server := testprocess.Start(t, command)
	s.server, s.pid, s.address = server.Process, server.Process.Pid, "http://"+address
	server.WaitUntil(t, "the S3 server", func() bool {
		response, err := http.Get("http://" + address + "/health")
		if err != nil {
			return false
		}
		response.Body.Close()
		return response.StatusCode == http.StatusOK
	})

	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(&url.URL{Scheme: "http", Host: address})
			r.Out.Host = r.In.Host // it is signed
		},
		ErrorLog: log.New(io.Discard, "", 0),
	}
	front := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.away.Load() {
			panic(http.ErrAbortHandler)
		}
		ctxtime.Sleep(r.Context(), time.Duration(s.wait.Load()))
		if r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/file/") {
			s.gets.Add(1)
		}
		proxy.ServeHTTP(w, r)
	}))
	front.Config.ErrorLog = log.New(io.Discard, "", 0)
	front.Start()
	t.Cleanup(front.Close)
	t.Setenv("AWS_ACCESS_KEY_ID", user)
	t.Setenv("AWS_SECRET_ACCESS_KEY", secret)
	s.flags = []string{"--s3-endpoint", front.URL, "--s3-path-style"}
	return s
}

// objects returns the paths of the objects below a prefix.
func (s *s3Server) objects(t *testing.T, prefix string) []string {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(s.dir, prefix))
	require.NoError(t, err)
	var paths []string
	for _, e := range entries {
		paths = append(paths, filepath.Join(s.dir, prefix, e.Name()))
	}
	return paths
}

func fileSize(t *testing.T, path string) int64 {
	t.Helper()
	info, err := os.Stat(path)
	require.NoError(t, err)
	return info.Size()
}

// flipByte changes a byte of a file, and again changes it back.
func flipByte(t *testing.T, path string, offset int64) {
	t.Helper()
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	require.NoError(t, err)
	var b [1]byte
	_, err = file.ReadAt(b[:], offset)
	require.NoError(t, err)
	b[0] ^= 1
	_, err = file.WriteAt(b[:], offset)
	require.NoError(t, err)
	require.NoError(t, file.Close())
}

// published is a collection in an S3 server, and the queue that is published to it.
type published struct {
	s3          *s3Server
	url         string
	flags       []string // of all commands
	queue, work string
}

func newPublished(t *testing.T, s3 *s3Server, flags ...string) *published {
	t.Helper()
	return &published{s3: s3, url: "s3://docs/debian", flags: append(flags, s3.flags...), queue: t.TempDir(), work: t.TempDir()}
}

// updater runs a command that succeeds.
func (p *published) updater(t *testing.T, args ...string) {
	t.Helper()
	start(t, nil, "docstore-updater", append(append(args, "--bucket", p.url), p.flags...)...).WaitExit(t)
}

// refuses runs a command that fails, and returns its output.
func (p *published) refuses(t *testing.T, args ...string) string {
	t.Helper()
	command := start(t, nil, "docstore-updater", append(args, "--bucket", p.url)...)
	<-command.Exited
	require.Equal(t, 1, command.ProcessState.ExitCode(), command.Output.String())
	return command.Output.String()
}

// ingest appends and publishes documents.
func (p *published) ingest(t *testing.T, documents []document) {
	t.Helper()
	p.append(t, documents)
	p.updater(t, "publish", "--queue", p.queue, "--quiet")
}

func (p *published) append(t *testing.T, documents []document) {
	t.Helper()
	start(t, strings.NewReader(string(ndjson(documents))), "docstore-updater", "append", "--queue", p.queue, "--segment-size", "256KiB", "--quiet").WaitExit(t)
	start(t, nil, "docstore-updater", "seal", "--queue", p.queue).WaitExit(t)
}

// release validates and announces the newest manifest.
func (p *published) release(t *testing.T) {
	t.Helper()
	p.updater(t, "validate", "--queue", p.work, "--quiet")
	p.updater(t, "announce")
}

// serve starts a daemon.
func (p *published) serve(t *testing.T, flags ...string) *daemon {
	t.Helper()
	return startDaemonWith(t, p.url, filepath.Join(t.TempDir(), "data"), append(flags, p.flags...)...)
}

// outage is how long both stores are away in TestServingWithoutEtcdAndBucket.
func outage() time.Duration {
	if crashtest.Soak() {
		return time.Minute
	}
	return 10 * time.Second
}
