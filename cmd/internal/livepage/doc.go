// Package livepage is what a daemon shows of itself: a page for people, kept
// current, and the same as JSON for machines.
//
//	daemon -> Source.Status -> Page -+-> GET /               the page, whole, without scripts
//	             |                   +-> GET /live           server-sent events: sections that changed
//	             |                   +-> GET /api/v1/status  Status as JSON
//	             +-> Source.LookUp ----> GET /lookup         one document: where it is, what it is
//
// The page is one template of sections, each rendered by itself. A browser gets all
// of them with the first request; its script then listens to /live and replaces the
// sections that come, so that script and server know no layout twice. Everything is
// embedded: nothing comes from elsewhere, and the content security policy forbids it.
//
// A status is gathered at most once a second however many look, and not at all while
// nobody does. Only the few numbers behind the graphs are sampled all the time, by
// Page.Run: five minutes of them are kept.
//
// The package knows of storage and network nothing but the numbers in Status.
package livepage
