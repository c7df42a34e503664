package main

import (
	"testing"

	"docstore/cmd/internal/cli/clitest"
)

// TestWhatHelpSays is true of what the commands do, as far as that can be told.
func TestWhatHelpSays(t *testing.T) { clitest.Help(t, newRoot) }
