package main

import (
	"fmt"
	"image/png"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestPicture(t *testing.T) {
	panels, err := read("../../deploy/grafana/docstore.json")
	require.NoError(t, err)
	require.NotEmpty(t, panels)
	queries := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		queries++
		require.NotContains(t, r.FormValue("query"), "$")
		_, _ = fmt.Fprint(w, `{"data":{"result":[{"metric":{"instance":"a"},"values":[[1700000000,"1"],[1700000060,"NaN"],[1700000120,"3"]]}]}}`)
	}))
	t.Cleanup(server.Close)
	from := &source{server.URL, time.Unix(1_700_000_000, 0), time.Unix(1_700_000_600, 0)}
	name := filepath.Join(t.TempDir(), "dashboard.png")
	require.NoError(t, draw(name, panels, from))
	require.GreaterOrEqual(t, queries, len(panels))
	file, err := os.Open(name)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, file.Close()) })
	drawn, err := png.Decode(file)
	require.NoError(t, err)
	require.Equal(t, 3*5*96, drawn.Bounds().Dx())
}

func TestRefusedQuery(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, `{"status":"error","error":"parse error"}`, http.StatusBadRequest)
	}))
	t.Cleanup(server.Close)
	from := &source{server.URL, time.Unix(0, 0), time.Unix(600, 0)}
	require.ErrorContains(t, from.query("up{", "", nil), "up{: parse error")
}
