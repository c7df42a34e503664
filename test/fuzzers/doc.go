// Package fuzzers requires a fuzz target for each decoder of bytes of a file or a peer.
package fuzzers
