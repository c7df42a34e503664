// Package livepage serves the state of a daemon: a page for people, updated
// continuously, and the same as JSON for machines.
//
//	daemon -> Source.Status -> Page -+-> GET /               the complete page, without scripts
//	             |                   +-> GET /live           server-sent events: changed sections
//	             |                   +-> GET /api/v1/status  Status as JSON
//	             +-> Source.LookUp ----> GET /lookup         one document and its location
//	             +-> Source.Explain ---> GET /explain        why an id is served here or not
//	             +-> Source.Browse ----> GET /browse         a page of ids
//	                                     GET /guides/NAME    a guide as text
//
// The page is one template of sections, each rendered separately. A browser gets all of
// them with the first request; its script then listens to /live and replaces the sections
// that it receives, so only the server knows the layout. All assets are embedded, and the
// content security policy forbids others.
//
// A status is computed at most once per second for any number of viewers, and never
// without viewers. Only the few numbers behind the graphs are sampled continuously, by
// Page.Run, and kept for five minutes.
//
// The package depends on storage and network only through the numbers in Status.
package livepage
