package ui

import (
	"path/filepath"
	"testing"

	"github.com/chromedp/chromedp"
)

// TestManifests shows which manifest is announced, served and pinned, and by whom.
func TestManifests(t *testing.T) {
	dir := t.TempDir()
	d := &daemon{t: t, queue: filepath.Join(dir, "queue")}
	url := "file://" + filepath.Join(dir, "bucket")
	release := func(line string) {
		d.append(line + "\n")
		d.updater("seal", "--queue", d.queue)
		d.updater("publish", "--queue", d.queue, "--bucket", url, "--quiet")
		d.updater("validate", "--queue", filepath.Join(dir, "validate"), "--bucket", url, "--quiet")
		d.updater("announce", "--bucket", url)
	}
	release(`{"id":"a"}`)
	d.serve(url)
	b := openBrowser(t, 1280, 900)
	b.do(chromedp.Navigate(d.http))
	b.shows(`document.getElementById("connection").textContent === "live"`)
	row := func(name, content string) {
		t.Helper()
		b.shows(`[...document.querySelectorAll("#queues dt")].some(dt => dt.textContent === "` + name + `" && dt.nextElementSibling.textContent.includes("` + content + `"))`)
	}
	row("manifest served", "1")
	release(`{"id":"b"}`)
	row("manifest announced", "2")
	row("manifest served", "2")
	d.updater("pin", "--bucket", url, "--to", "1", "--reason", "typo")
	row("manifest wanted here", "1, pinned by ")
	row("manifest wanted here", "(typo)")
	row("manifest served", "1")
	row("fetched", "from the store")
	b.picture("live-manifests.png")
}
