package ui

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"
)

var screenshots = flag.String("screenshots", "", "directory for screenshots")

// pageTimeout ends a test that hangs.
const pageTimeout = 2 * time.Minute

// browser opens a page in a new tab and closes it at the end of the test.
type browser struct {
	t   *testing.T
	ctx context.Context
}

func openBrowser(t *testing.T, width, height int64) *browser {
	t.Helper()
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.NoSandbox, chromedp.WindowSize(int(width), int(height)))
	ctx, cancel := context.WithTimeout(context.Background(), pageTimeout)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewExecAllocator(ctx, options...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	b := &browser{t, ctx}
	b.do(chromedp.EmulateViewport(width, height))
	return b
}

// do performs user actions.
func (b *browser) do(steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	require.NoError(b.t, chromedp.Do(b.ctx, steps...))
}

// value evaluates a JavaScript expression.
func value[T any](b *browser, expression string) T {
	b.t.Helper()
	v, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](expression))
	require.NoError(b.t, err, expression)
	return v
}

// prefers sets the preferred color scheme of the system.
func (b *browser) prefers(scheme string) {
	b.t.Helper()
	b.do(command(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
	}))
}

// command wraps a command of the DevTools protocol as an action.
func command[P, R any](c cdp.Command[P, R], params P) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, c, params)
		return err
	})
}

// text returns the visible text of an element.
func (b *browser) text(selector string) string {
	b.t.Helper()
	text, err := chromedp.Run(b.ctx, chromedp.Text(chromedp.CSS(selector)))
	require.NoError(b.t, err, selector)
	return text
}

// shows waits until a JavaScript expression is true.
func (b *browser) shows(expression string) {
	b.t.Helper()
	_, err := chromedp.Run(b.ctx, chromedp.Poll[chromedp.Void](expression, chromedp.WithPollingTimeout(pageTimeout)))
	require.NoError(b.t, err, expression)
}

// picture saves a screenshot if -screenshots is set.
func (b *browser) picture(name string) {
	b.t.Helper()
	if *screenshots == "" {
		return
	}
	png, err := chromedp.Run(b.ctx, chromedp.FullScreenshot(100))
	require.NoError(b.t, err)
	require.NoError(b.t, os.WriteFile(filepath.Join(*screenshots, name), png, 0o644))
}

// TestLookUp finds a document by keyboard only.
func TestLookUp(t *testing.T) {
	d := startDaemon(t)
	b := openBrowser(t, 1280, 900)
	b.do(chromedp.Navigate(d.http), chromedp.WaitVisible(chromedp.CSS(`input[name=id]`)))
	var focused string
	for range 10 { // Tab reaches the field
		b.do(chromedp.KeyEvent(kb.Tab))
		focused = value[string](b, `document.activeElement.name || ""`)
		if focused == "id" {
			break
		}
	}
	require.Equal(t, "id", focused)
	b.do(chromedp.KeyEvent("job-00003"+kb.Enter), chromedp.WaitVisible(chromedp.CSS(`pre`)))
	require.Equal(t, "{\n  \"id\": \"job-00003\",\n  \"title\": \"Senior engineer\"\n}", b.text(`pre`))
	b.do(chromedp.Click(chromedp.CSS(`.copy`)))
	b.shows(`document.querySelector(".copy").textContent === "Copied"`)
	b.do(chromedp.Click(chromedp.CSS(`a[href*="versions"]`)), chromedp.WaitVisible(chromedp.CSS(`table`)))
	require.Equal(t, 2, value[int](b, `document.querySelectorAll("tbody tr").length`))
	b.picture("live-lookup.png")

	b.do(chromedp.Navigate(d.http+"/lookup?collection=jobs&id=job-00001"), chromedp.WaitVisible(chromedp.CSS(`pre`)))
	require.Contains(t, b.text(`pre`), "<b>words </b>", "markup in a document is shown as text")
	b.do(chromedp.Navigate(d.http+"/lookup?collection=jobs&id=nobody"), chromedp.WaitVisible(chromedp.CSS(`.warn-text`)))
	require.Equal(t, "not found", b.text(`.warn-text`))
	b.do(chromedp.Click(chromedp.CSS(`a[href^="/explain"]`)), chromedp.WaitVisible(chromedp.CSS(`main code`)))
	require.Contains(t, b.text(`main section > p`), "absent: no version of the id is in the collection")
}

// TestBrowse follows the pages of the ids with a prefix, and opens a document.
func TestBrowse(t *testing.T) {
	d := startDaemon(t)
	b := openBrowser(t, 390, 844)
	b.do(chromedp.Navigate(d.http), chromedp.SendKeys(chromedp.CSS(`input[name=id]`), "job-0123"), chromedp.Click(chromedp.CSS(`button[formaction="/browse"]`)),
		chromedp.WaitVisible(chromedp.CSS(`.ids`)))
	b.shows(`document.querySelectorAll(".ids a").length === 10 && document.querySelector("input[name=prefix]").value === "job-0123"`)
	b.do(chromedp.Click(chromedp.CSS(`.ids li:nth-child(5) a`)), chromedp.WaitVisible(chromedp.CSS(`pre`)))
	require.Contains(t, b.text(`pre`), "job-01234")
	b.do(chromedp.Click(chromedp.CSS(`header a[href^="/browse"]`)), chromedp.WaitVisible(chromedp.CSS(`.ids`)))
	require.Equal(t, 100, value[int](b, `document.querySelectorAll(".ids a").length`))
	b.do(chromedp.Click(chromedp.CSS(`a[rel=next]`)), chromedp.WaitVisible(chromedp.CSS(`a[rel=next][href*="job-00199"]`)))
	require.Equal(t, "job-00100", b.text(`.ids a`))
	b.do(chromedp.Click(chromedp.CSS(`a[rel=next]`)), chromedp.WaitVisible(chromedp.CSS(`a[rel=next][href*="job-00299"]`)))
	b.do(chromedp.Click(chromedp.CSS(`a[rel=prev]`)), chromedp.WaitVisible(chromedp.CSS(`a[rel=next][href*="job-00199"]`)))
	require.Equal(t, "job-00100", b.text(`.ids a`))
	require.LessOrEqual(t, value[int](b, `document.documentElement.scrollWidth`), 390)
	b.picture("live-browse.png")
}

// TestLiveUpdate: an appended document appears without a reload.
func TestLiveUpdate(t *testing.T) {
	d := startDaemon(t)
	b := openBrowser(t, 1280, 900)
	b.do(chromedp.Navigate(d.http))
	b.shows(`document.getElementById("connection").textContent === "live"`)
	require.True(t, value[bool](b, `window.loadedOnce = true`))
	before := b.text(`#queues dd`)
	require.Equal(t, "80,000", before)
	d.append(`{"id":"new","text":"arrived"}` + "\n")
	b.shows(`document.querySelector("#queues dd").textContent === "80,001"`)
	b.shows(`window.loadedOnce === true`)
}

// TestSlotBoard shows the assigned slots of all clients and of one client.
func TestSlotBoard(t *testing.T) {
	d := startDaemon(t)
	d.load()
	b := openBrowser(t, 1280, 1000)
	b.do(chromedp.Navigate(d.http))
	b.shows(`document.querySelectorAll(".board .slot").length >= 8`)
	b.shows(`document.querySelectorAll("#figures polyline").length > 0 && [...document.querySelectorAll("#figures tbody td")].some(cell => cell.textContent === "Get")`)
	b.shows(`/in memory\s*[0-9.]+ % of .* mapped\s*cold reads\s*[0-9,]+\/s/.test(document.getElementById("queues").textContent)`)
	b.do(chromedp.Click(chromedp.CSS(`#boxcar a[href*="client="]`)))
	b.do(chromedp.WaitVisible(chromedp.CSS(`summary:has(#h-boxcar) + p a[href="/"]`))) // the link back to all clients
	b.shows(`document.querySelectorAll(".board .slot").length >= 8`)
	b.do(chromedp.Navigate(d.http + "/?client=nobody"))
	b.shows(`document.getElementById("connection").textContent === "live"`)
	b.shows(`document.querySelectorAll(".board .slot").length === 0`)

	// Screenshots for the documentation.
	b.do(chromedp.Navigate(d.http))
	b.shows(`document.getElementById("queues").textContent.includes("live bytes as of")`)
	if *screenshots != "" {
		b.do(chromedp.Sleep(30 * time.Second)) // load for the graphs
	}
	b.picture("live.png")
	b.prefers("dark")
	b.picture("live-dark.png")
	b.prefers("light")
	b.do(chromedp.EmulateViewport(390, 844, chromedp.EmulateMobile), chromedp.Navigate(d.http))
	b.shows(`document.querySelector("main details").open === false`)
	b.picture("live-390.png")
}

// TestDiagnostics shows the log, the settings and the guides.
func TestDiagnostics(t *testing.T) {
	d := startDaemon(t)
	for _, width := range []int64{1280, 390} {
		for _, scheme := range []string{"light", "dark"} {
			b := openBrowser(t, width, 900)
			b.prefers(scheme)
			b.do(chromedp.Navigate(d.http))
			b.shows(`document.getElementById("log").textContent.includes("serving")`)
			require.True(t, value[bool](b, `document.querySelectorAll("main details").forEach(d => d.open = true) === undefined`))
			require.Contains(t, b.text(`#settings`), "memory: 16MiB # flag\n")
			require.LessOrEqual(t, value[int](b, `document.documentElement.scrollWidth`), int(width))
			b.picture(fmt.Sprintf("live-log-%d-%s.png", width, scheme))
			b.do(chromedp.Navigate(value[string](b, `document.querySelector("a[href$='alerts.md']").href`)))
			require.Contains(t, b.text(`pre`), "DocstoreDown")
		}
	}
}

// TestDarkMode: the page follows the color scheme of the system.
func TestDarkMode(t *testing.T) {
	d := startDaemon(t)
	b := openBrowser(t, 1280, 900)
	background := func(scheme string) string {
		b.prefers(scheme)
		b.do(chromedp.Navigate(d.http))
		return value[string](b, `getComputedStyle(document.body).backgroundColor`)
	}
	require.Equal(t, "rgb(250, 250, 248)", background("light"))
	require.Equal(t, "rgb(20, 23, 26)", background("dark"))
}

// TestNarrow: at the width of a phone nothing overflows; tables show only their main columns,
// and three collections fit on two screens until details are requested.
func TestNarrow(t *testing.T) {
	d := startDaemon(t, "two", "three")
	b := openBrowser(t, 390, 844)
	b.do(chromedp.Navigate(d.http))
	b.shows(`document.getElementById("queues").textContent.includes("live bytes as of")`)
	b.shows(`document.getElementById("collections").textContent.includes("60,000")`)
	require.LessOrEqual(t, value[int](b, `document.documentElement.scrollWidth`), 390)
	require.LessOrEqual(t, value[int](b, `document.documentElement.scrollHeight`), 2*844)
	b.prefers("dark")
	b.picture("live-narrow-dark.png")
	b.prefers("light")
	require.True(t, value[bool](b, `document.querySelectorAll("main details").forEach(d => d.open = true) === undefined`))
	require.LessOrEqual(t, value[int](b, `document.documentElement.scrollWidth`), 390)
	require.Empty(t, value[string](b, `[...document.querySelectorAll(".scroll")].filter(s => s.scrollWidth > s.clientWidth).map(s => s.ariaLabel).join()`))
}

// TestWithoutScripts: without JavaScript the page is complete and says that it does not
// update.
func TestWithoutScripts(t *testing.T) {
	d := startDaemon(t)
	b := openBrowser(t, 1280, 900)
	b.do(command(emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true}), chromedp.Navigate(d.http))
	require.Contains(t, b.text(`#connection`), "reload for news")
	require.Equal(t, "80,000", b.text(`#queues dd`))
	require.Contains(t, b.text(`#boxcar`), d.boxcar)
}
