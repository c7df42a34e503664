// Package stored is the form in which documents leave a queue: the bytes of the segment with
// everything needed to verify and decode them elsewhere, between server and client and in a
// cache.
//
//	form, err := stored.Parse(b, id) // verified: the document of this id, unchanged
//	decoders := stored.NewDecoders(stored.NewDecoderCache(16<<20), fetchDictionary)
//	document, err := decoders.Decode(ctx, dst, form)
//
// All functions and methods are safe for concurrent use. A [Form] refers to the bytes that
// it was parsed from. docs/format/stored.md has the layout and an example.
//
// The package links into every client of package docservice. It must not know segments,
// directories or the index: package queue writes forms, with [Header.Put].
package stored
