// Package e2e contains the end-to-end tests: the real commands as processes, real rsync, real
// signals, and a Boxcar client that compares all documents byte by byte.
//
// The documents are ../shared/debian-packages.ndjson.gz, next to the repository (63,666
// records of about 1 KB), or the same number of generated job postings if that file is absent.
package e2e
