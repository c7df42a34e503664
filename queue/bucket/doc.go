// Package bucket stores immutable objects: the segments, increments and manifests of a
// collection. A bucket is an S3-compatible object store or a directory that several
// machines share.
//
//	b, err := bucket.Open(ctx, "s3://company-docs/jobs", bucket.Options{})
//	err = b.Put(ctx, "segment/0a1b2c", file, size)  // ErrExist: the object was there
//	r, err := b.Get(ctx, "segment/0a1b2c", 0, -1)   // resumes when a connection breaks
//
// # Objects
//
// An object is created whole or not at all, and never changes until it is deleted. Put
// never replaces an object: of several concurrent Puts of one name exactly one succeeds,
// the others return ErrExist. Package publish relies on this. Some stores accept a
// conditional PUT without executing it atomically: Check tests a store under contention
// and reports each deviation.
//
// A Put whose response was lost is repeated and may then find its own object. After
// ErrExist, a caller that needs to know which Put succeeded compares a nonce or a digest
// in the object with its own.
//
// Names consist of letters, digits, '.', '_', '-' and, between parts, '/'. A part does not
// begin with '.'. A name has at most MaxNameBytes bytes.
//
// # Backends
//
//	s3://BUCKET[/PREFIX]   one PUT per object with If-None-Match: *, never multipart, so an
//	                       object has at most 5 GiB
//	file:///DIR            write a temporary file, fsync it, link(2) it to its name, fsync
//	                       the directory; works over NFS
//
// Credentials and region of S3 come from the environment and the files of the AWS
// command-line tools.
//
// # Failures
//
// A Client repeats a request that failed for a temporary reason, with exponential backoff
// and jitter, until Options.Timeout. A transfer that makes no progress for
// Options.StallTimeout is aborted and repeated. A Get continues where its connection
// broke. When a store asks to slow down, the Client halves its concurrency and raises it
// again by one with each round of successful requests. Requests and bytes in flight are
// limited. Wrong credentials, a missing bucket and a skewed clock are errors at once: they
// match ErrDenied, ErrNoBucket and ErrClockSkew.
//
// # Concurrency
//
// All types are safe for concurrent use, except the reader that Get returns.
package bucket
