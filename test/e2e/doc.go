// Package e2e holds the end-to-end tests: the real commands as processes of
// their own, real rsync between directories, real signals, and a Boxcar client
// that compares every document byte for byte.
//
// The documents are shared/debian-packages.ndjson.gz, which lies beside the
// project (63,666 records of about 1 KB), or as many made-up job postings where
// that file is absent.
package e2e
