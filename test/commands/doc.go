// Package commands contains the end-to-end test of make test: it builds the commands and runs
// them as a user does, with nothing but Go. Package test/e2e has the tests with real servers.
package commands
