package main

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func Example() {
	main()
	// Output:
	// get: {"title":"baker"}
	// get: job/nurse was deleted
	// scan: job/baker {"title":"baker"}
	// scan: job/teacher {"title":"teacher"}
}
