// Package openapi tests that the OpenAPI description of docserviced, which the daemon
// serves, is valid and describes its requests and responses. It is a module, so that the
// validator is no dependency of docstore.
//
//	cd test/openapi && go test .
package openapi
