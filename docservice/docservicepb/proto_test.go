package docservicepb

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// The Node client ships a copy of the protocol.
func TestCopyOfNodeClient(t *testing.T) {
	want, err := os.ReadFile("docservice.proto")
	require.NoError(t, err)
	got, err := os.ReadFile("../../clients/node/proto/docservice.proto")
	require.NoError(t, err)
	require.Equal(t, string(want), string(got), "run make proto")
}
