package main

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func Example() {
	main()
	// Output:
	// Find without a user: Unauthenticated who are you?
	// Find: ["go developer"], header ["4"]
	// Watch: baker
	// Watch: baker, nights
	// Count: 4
	// Suggest: go -> go developer
	// Suggest: n -> nurse
}
