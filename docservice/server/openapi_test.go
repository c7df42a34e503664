package server

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"docstore/internal/servertest"
)

// The description is served, and has every path for documents that the daemon answers.
// Package test/openapi validates responses.
func TestOpenAPI(t *testing.T) {
	dir := t.TempDir()
	servertest.Fill(t, dir, "a", `{"n":1}`)
	d, _ := startTestDaemon(t, testOptions(t, dir))
	waitReady(t, d)
	r := servertest.Get(d.http.Handler, "/openapi.yaml")
	require.Equal(t, http.StatusOK, r.Code)
	var description struct{ Paths map[string]map[string]any }
	require.NoError(t, yaml.Unmarshal(r.Body.Bytes(), &description))
	for path, operations := range description.Paths {
		path = strings.NewReplacer("{collection}", "jobs", "{id}", "a").Replace(path)
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			status := ask(t, d, method, path, `["a"]`).Code
			if operations[strings.ToLower(method)] == nil {
				require.NotEqual(t, http.StatusOK, status, "%s %s", method, path)
			} else {
				require.Equal(t, http.StatusOK, status, "%s %s", method, path)
			}
		}
	}
	for path, kind := range endpointPaths {
		if kind == "documents" && !strings.Contains(path, "%") && !strings.HasPrefix(path, "/lookup") && !strings.HasPrefix(path, "/browse") && !strings.HasPrefix(path, "/explain") { // pages
			path = strings.NewReplacer("/jobs/a", "/{collection}/{id}", "/jobs", "/{collection}").Replace(path)
			require.Contains(t, description.Paths, path)
		}
	}
}
