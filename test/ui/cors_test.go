package ui

import (
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

// TestPageOfAnotherOrigin lists ids and fetches a document with the example page, which another
// server serves. A page of an origin that is not in --http-cors reads nothing.
func TestPageOfAnotherOrigin(t *testing.T) {
	pages := http.FileServer(http.Dir(filepath.Join("..", "..", "examples", "browser")))
	allowed, refused := httptest.NewServer(pages), httptest.NewServer(pages)
	defer allowed.Close()
	defer refused.Close()
	d := &daemon{t: t, queue: filepath.Join(t.TempDir(), "queue"), flags: []string{"--http-cors", allowed.URL}}
	d.append(`{"id":"acme-1","title":"Lift operator"}` + "\n" + `{"id":"acme/2 ü","title":"Night baker"}` + "\n" + `{"id":"other"}` + "\n")
	d.serve(d.queue)

	b := openBrowser(t, 1280, 900)
	search := func(page string) {
		t.Helper()
		b.do(chromedp.Navigate(page), chromedp.WaitVisible(chromedp.CSS(`form`)))
		value[string](b, `document.querySelector("[name=server]").value = "`+d.http+`"`)
		value[string](b, `document.querySelector("[name=prefix]").value = "acme"`)
		b.do(chromedp.Click(chromedp.CSS(`form button`)))
	}
	search(allowed.URL)
	b.shows(`document.querySelector("[role=status]").textContent !== ""`)
	require.Equal(t, "2 ids", b.text(`[role=status]`))
	b.do(chromedp.Click(chromedp.CSS(`li:nth-child(2) button`)))
	b.shows(`document.querySelector("pre").textContent !== ""`)
	require.Equal(t, `{"id":"acme/2 ü","title":"Night baker"}`, b.text(`pre`))
	b.picture("browser-example.png")

	search(refused.URL)
	b.shows(`document.querySelector("[role=status]").textContent !== ""`)
	require.Equal(t, "Failed to fetch", b.text(`[role=status]`))
	require.Equal(t, 0, value[int](b, `document.querySelectorAll("li").length`))
}
