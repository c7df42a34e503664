// Package ui tests the live page of the daemon with headless Chromium: lookup by keyboard, a
// list of ids, live updates, the slots of one client, dark mode, narrow screens, and no
// JavaScript; and the example page of another origin. It is a separate module, so that docstore does not depend on the browser driver.
// Run it with
//
//	make test-all
//
// which installs Chromium; the flag -screenshots DIR saves screenshots.
package ui
