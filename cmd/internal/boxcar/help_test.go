package boxcar

import (
	"testing"

	"docstore/cmd/internal/cli/clitest"
)

// TestHelpTexts checks the help texts against the commands.
func TestHelpTexts(t *testing.T) { clitest.Help(t, New, "operators") }
