// Package e2e contains the end-to-end tests: the real commands as processes, real rsync, real
// signals, and a Boxcar client that compares all documents byte by byte.
//
// The documents are generated job postings of about 1 KB.
package e2e
