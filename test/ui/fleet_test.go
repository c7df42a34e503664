package ui

import (
	"bufio"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"docstore/docservice/placement"
	"docstore/internal/shardtest"
)

// startFleetDaemon starts a daemon that shows the fleet of an etcd, and returns the URL of its
// page.
func startFleetDaemon(t *testing.T, etcd string) string {
	t.Helper()
	command := exec.Command(filepath.Join(commands, "docserviced"), "serve", "--collection", "jobs=file://"+t.TempDir(), "--etcd", etcd,
		"--data", t.TempDir(), "--boxcar", "127.0.0.1:0", "--http", "127.0.0.1:0", "--memory", "16MiB", "--quiet")
	log, err := command.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, command.Start())
	t.Cleanup(func() {
		require.NoError(t, command.Process.Signal(syscall.SIGTERM))
		require.NoError(t, command.Wait())
	})
	lines := bufio.NewScanner(log)
	for lines.Scan() {
		var line struct{ Msg, HTTP string }
		require.NoError(t, json.Unmarshal(lines.Bytes(), &line), lines.Text())
		if line.Msg == "serving" {
			go func() {
				for lines.Scan() { // drain the pipe, so the daemon does not block
				}
			}()
			return line.HTTP
		}
	}
	require.Fail(t, "the daemon exited")
	return ""
}

// TestFleet follows a move on the fleet page: planned, fetched with its progress, completed.
func TestFleet(t *testing.T) {
	c := shardtest.New(t, 4, 60)
	a := c.Even("a")["a"]
	first, second := c.Start("b", "http://127.0.0.1:7071"), c.Start("b", "")
	url := startFleetDaemon(t, c.Etcd.Address)
	b := openBrowser(t, 1280, 900)
	b.do(chromedp.Navigate(url + "/fleet"))
	b.shows(`document.getElementById("connection").textContent === "live"`)
	cell := func(column string, row int, content string) {
		t.Helper()
		b.shows(`[...document.querySelectorAll("#columns tbody tr")].some(tr => tr.cells[0].textContent === "` + column +
			`" && tr.cells[` + string(rune('3'+row)) + `].textContent.includes("` + content + `"))`)
	}
	cell("a", 0, "ready "+a.Address)
	cell("a", 0, "4 of 4 shards")
	cell("a", 0, "manifest 3")
	cell("a", 1, "free")
	cell("b", 1, "0 of 0 shards")
	b.shows(`document.querySelector('#columns a[href="http://127.0.0.1:7071"]') !== null`)
	b.shows(`document.getElementById("moves").textContent.includes("none in progress")`)

	c.Want("a", "a", "a", "b")
	c.Wait(func(m *placement.Map) bool { return m.Shards[3].Next == "b" })
	first.Hold(3)
	second.Fetch(3, 500)
	b.shows(`document.getElementById("moves").textContent.includes("500 B of 1003 B")`)
	b.shows(`document.querySelector("#moves progress").value === 500`)
	cell("b", 1, "fetching")
	b.picture("live-fleet.png")
	second.Hold(3)
	b.shows(`document.getElementById("moves").textContent.includes("none in progress")`)
	cell("b", 1, "1 of 1 shards")

	c.Etcd.Kill()
	b.shows(`document.querySelector("#summary .bad-text") !== null`)
	cell("b", 1, "ready")
	c.Etcd.Restart(t)
	b.shows(`document.querySelector("#summary .bad-text") === null`)

	// On a narrow screen the table scrolls, the page does not.
	narrow := openBrowser(t, 390, 800)
	narrow.do(chromedp.Navigate(url + "/fleet"))
	narrow.shows(`document.documentElement.scrollWidth <= 390`)
}
