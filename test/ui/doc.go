// Package ui looks at the daemon's live page with a real browser, Chromium without a
// window, as a person would: look-up by keyboard, figures that change by themselves,
// the slots of one client, the dark, the narrow and the scriptless page. It is a module
// of its own, so that the product does not depend on what drives a browser. Run it with
//
//	make test-ui
//
// which installs Chromium; -screenshots DIR keeps pictures of what it saw.
package ui
