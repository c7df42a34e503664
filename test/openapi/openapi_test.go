package openapi

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/gorillamux"
	"github.com/stretchr/testify/require"
)

// commands is the directory of the built commands.
var commands string

func TestMain(m *testing.M) { os.Exit(buildAndRun(m)) }

func buildAndRun(m *testing.M) int {
	dir, err := os.MkdirTemp("", "docstore-openapi")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }() // best effort
	build := exec.Command("go", "build", "-o", dir+string(filepath.Separator), "./cmd/docserviced", "./cmd/docstore-updater")
	build.Dir = filepath.Join("..", "..")
	if output, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build the commands: %v\n%s", err, output)
		return 1
	}
	commands = dir
	return m.Run()
}

// serve serves a queue with some documents until the test ends and returns the URL.
func serve(t *testing.T, flags ...string) string {
	t.Helper()
	queue := filepath.Join(t.TempDir(), "queue")
	appending := exec.Command(filepath.Join(commands, "docstore-updater"), "append", "--queue", queue, "--quiet")
	appending.Stdin = strings.NewReader(`{"id":"a","title":"Lift operator"}` + "\n" + `{"id":"long","text":"` + strings.Repeat("words ", 500) + `"}` + "\n" +
		`{"_id_base64":"/w==","_document_base64":"AAEC"}` + "\n" + `{"id":"x/y","_document_base64":"aGVsbG8KCg=="}` + "\n")
	output, err := appending.CombinedOutput()
	require.NoError(t, err, string(output))

	daemon := exec.Command(filepath.Join(commands, "docserviced"), append([]string{
		"serve", "--collection", "jobs=" + queue, "--data", t.TempDir(),
		"--boxcar", "127.0.0.1:0", "--http", "127.0.0.1:0", "--memory", "16MiB", "--quiet",
	}, flags...)...)
	log, err := daemon.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, daemon.Start())
	t.Cleanup(func() {
		require.NoError(t, daemon.Process.Signal(syscall.SIGTERM))
		require.NoError(t, daemon.Wait())
	})
	base, ready := "", false
	lines := bufio.NewScanner(log)
	for (!ready || base == "") && lines.Scan() {
		var line struct{ Msg, HTTP string }
		require.NoError(t, json.Unmarshal(lines.Bytes(), &line), lines.Text())
		if line.Msg == "serving" {
			base = line.HTTP
		}
		ready = ready || line.Msg == "the queue has been read to its end"
	}
	require.True(t, ready, "the daemon exited")
	go func() { _, _ = io.Copy(io.Discard, log) }() // until the daemon exits
	return base
}

// description loads the description that a daemon serves, with its URL as the server.
func description(t *testing.T, base string) (*openapi3.T, routers.Router) {
	t.Helper()
	response, err := http.Get(base + "/openapi.yaml")
	require.NoError(t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	stored, err := os.ReadFile(filepath.Join("..", "..", "docservice", "server", "openapi.yaml"))
	require.NoError(t, err)
	require.Equal(t, string(stored), string(text))
	document, err := openapi3.NewLoader().LoadFromData(text)
	require.NoError(t, err)
	require.NoError(t, document.Validate(t.Context()))
	document.Servers = openapi3.Servers{{URL: base}}
	router, err := gorillamux.NewRouter(document)
	require.NoError(t, err)
	return document, router
}

// exchange is a request, and the status that it must have. wrong: the description forbids
// the request.
type exchange struct {
	method, path, body, kind string
	headers                  map[string]string
	status                   int
	wrong                    bool
}

func (e *exchange) request(t *testing.T, base string) *http.Request {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), e.method, base+e.path, strings.NewReader(e.body))
	require.NoError(t, err)
	if e.kind != "" {
		request.Header.Set("Content-Type", e.kind)
	}
	for name, value := range e.headers {
		request.Header.Set(name, value)
	}
	return request
}

// run sends the request and validates it and the response.
func (e *exchange) run(t *testing.T, base string, document *openapi3.T, router routers.Router) http.Header {
	t.Helper()
	response, err := http.DefaultClient.Do(e.request(t, base))
	require.NoError(t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	require.Equal(t, e.status, response.StatusCode, string(body))

	request := e.request(t, base)
	route, parameters, err := router.FindRoute(request)
	require.NoError(t, err)
	input := &openapi3filter.RequestValidationInput{
		Request: request, PathParams: parameters, Route: route,
		Options: &openapi3filter.Options{AuthenticationFunc: openapi3filter.NoopAuthenticationFunc, IncludeResponseStatus: true},
	}
	err = openapi3filter.ValidateRequest(t.Context(), input)
	if e.wrong {
		require.Error(t, err)
	} else {
		require.NoError(t, err)
	}
	output := &openapi3filter.ResponseValidationInput{
		RequestValidationInput: input, Status: response.StatusCode, Header: response.Header, Options: input.Options,
	}
	if response.Header.Get("Content-Type") == "application/x-ndjson" {
		output.Options = &openapi3filter.Options{ExcludeResponseBody: true, IncludeResponseStatus: true}
		lines := 0
		for line := range bytes.Lines(body) {
			var answer any
			require.NoError(t, json.Unmarshal(line, &answer))
			require.NoError(t, document.Components.Schemas["Answer"].Value.VisitJSON(answer), string(line))
			lines++
		}
		require.Positive(t, lines)
	}
	output.SetBodyBytes(body)
	require.NoError(t, openapi3filter.ValidateResponse(t.Context(), output), string(body))
	return response.Header
}

func init() {
	openapi3filter.RegisterBodyDecoder("application/yaml", openapi3filter.FileBodyDecoder)
	openapi3filter.RegisterBodyDecoder("application/x-ndjson", openapi3filter.FileBodyDecoder)
}

// Every operation is described as the daemon answers it, errors included.
func TestResponses(t *testing.T) {
	base := serve(t)
	document, router := description(t, base)
	tag := (&exchange{method: "GET", path: "/documents/jobs/a", status: 200}).run(t, base, document, router).Get("ETag")
	seen := map[string]bool{}
	for _, e := range []exchange{
		{method: "GET", path: "/documents/jobs/long", headers: map[string]string{"Accept-Encoding": "identity"}, status: 200},
		{method: "GET", path: "/documents/jobs/x%2Fy", status: 200},
		{method: "GET", path: "/documents/jobs/a", headers: map[string]string{"If-None-Match": tag}, status: 304},
		{method: "GET", path: "/documents/jobs/a", headers: map[string]string{"Range": "bytes=0-99", "If-Range": tag}, status: 206},
		{method: "GET", path: "/documents/jobs/a", headers: map[string]string{"Range": "bytes=99-"}, status: 416},
		{method: "GET", path: "/documents/jobs/a", headers: map[string]string{"If-Match": `"another"`}, status: 412},
		{method: "GET", path: "/documents/jobs/missing", status: 404},
		{method: "GET", path: "/documents/other/a", status: 404},
		{method: "GET", path: "/documents/jobs/" + strings.Repeat("x", 2000), status: 400},
		{method: "POST", path: "/documents/jobs", kind: "application/json", body: `["a","missing",17,{"id_base64":"/w=="},{"id":"x/y"},""]`, status: 200},
		{method: "POST", path: "/documents/jobs", kind: "application/x-ndjson", body: `"a"` + "\n" + `17`, status: 200},
		{method: "POST", path: "/documents/jobs", kind: "application/json", body: `[]`, status: 400, wrong: true},
		{method: "POST", path: "/documents/jobs", kind: "application/json", body: `[{"key":"a"}]`, status: 400, wrong: true},
		{method: "POST", path: "/documents/jobs", kind: "application/json", body: `[1.5]`, status: 400, wrong: true},
		{method: "POST", path: "/documents/jobs", kind: "application/json", body: "[" + strings.Repeat("1,", 1<<14) + "1]", status: 413, wrong: true},
		{method: "POST", path: "/documents/jobs", kind: "application/json", body: `["a"]`, headers: map[string]string{"Content-Encoding": "br"}, status: 415},
		{method: "POST", path: "/documents/other", kind: "application/json", body: `["a"]`, status: 404},
		{method: "GET", path: "/collections", status: 200},
		{method: "GET", path: "/collections/jobs/ids", status: 200},
		{method: "GET", path: "/collections/jobs/ids?limit=1&prefix=x", status: 200},
		{method: "GET", path: "/collections/jobs/ids?limit=5000", status: 400, wrong: true},
		{method: "GET", path: "/collections/other/ids", status: 404},
		{method: "GET", path: "/collections/jobs/count?prefix=a", status: 200},
		{method: "GET", path: "/collections/jobs/count?limit=1", status: 400},
		{method: "GET", path: "/collections/jobs/export", status: 200},
		{method: "GET", path: "/collections/jobs/export?limit=0", status: 400, wrong: true},
		{method: "GET", path: "/healthz", status: 200},
		{method: "GET", path: "/readyz", status: 200},
		{method: "GET", path: "/readyz?draining=1", status: 400, wrong: true},
		{method: "GET", path: "/openapi.yaml", status: 200},
	} {
		t.Run(fmt.Sprintf("%s %.60s %d", e.method, e.path, e.status), func(t *testing.T) { e.run(t, base, document, router) })
		if e.status == 200 {
			route, _, err := router.FindRoute(e.request(t, base))
			require.NoError(t, err)
			seen[route.Operation.OperationID] = true
		}
	}
	for path, item := range document.Paths.Map() {
		for method, operation := range item.Operations() {
			require.True(t, seen[operation.OperationID] || method == http.MethodOptions, "%s %s is not tested", method, path)
		}
	}
}

// The responses to web pages of other origins are described, with their header fields.
func TestOtherOrigins(t *testing.T) {
	const origin = "https://www.example.org"
	base := serve(t, "--http-cors", origin)
	document, router := description(t, base)
	page := map[string]string{"Origin": origin, "Sec-Fetch-Site": "cross-site"}
	preflight := map[string]string{"Origin": origin, "Access-Control-Request-Method": "GET"}
	other := map[string]string{"Origin": "https://other.example.org", "Access-Control-Request-Method": "GET"}
	for path, item := range document.Paths.Map() {
		if item.Options == nil {
			continue
		}
		path = strings.NewReplacer("{collection}", "jobs", "{id}", "a").Replace(path)
		for _, e := range []exchange{
			{method: "OPTIONS", path: path, headers: preflight, status: 204},
			{method: "OPTIONS", path: path, headers: other, status: 403},
			{method: "GET", path: path, headers: page, status: 200},
		} {
			header := e.run(t, base, document, router)
			responses := item.Operations()[e.method].Responses.Status(e.status).Value.Headers
			for name := range header {
				if strings.HasPrefix(name, "Access-Control-") || name == "Vary" && e.status == 200 {
					require.Contains(t, responses, name, "%s %s", e.method, path)
				}
			}
			require.Equal(t, e.status != 403, header.Get("Access-Control-Allow-Origin") == origin)
		}
	}
	missing := exchange{method: "GET", path: "/documents/jobs/missing", headers: page, status: 404}
	require.Equal(t, origin, missing.run(t, base, document, router).Get("Access-Control-Allow-Origin"))
}

// Refusals are described.
func TestRefusals(t *testing.T) {
	base := serve(t, "--http", "0.0.0.0:0", "--http-open", "--client-rate", "0.001", "--client-rate-burst", "1")
	base = strings.Replace(base, "0.0.0.0", "127.0.0.1", 1)
	document, router := description(t, base)
	for _, path := range []string{"/documents/jobs/a", "/collections", "/collections/jobs/ids", "/collections/jobs/count", "/collections/jobs/export"} {
		(&exchange{method: "GET", path: path, status: 403}).run(t, base, document, router)
	}
	limited := serve(t, "--client-rate", "0.001", "--client-rate-burst", "1")
	document, router = description(t, limited)
	(&exchange{method: "GET", path: "/collections", status: 200}).run(t, limited, document, router)
	for _, path := range []string{"/documents/jobs/a", "/collections", "/collections/jobs/ids", "/collections/jobs/count", "/collections/jobs/export"} {
		(&exchange{method: "GET", path: path, status: 429}).run(t, limited, document, router)
	}
	(&exchange{method: "POST", path: "/documents/jobs", kind: "application/json", body: `["a"]`, status: 429}).run(t, limited, document, router)
}
