package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMemoryFlag(t *testing.T) {
	var m memorySize
	require.Equal(t, "auto", m.String())
	require.NoError(t, m.Set("2GiB"))
	require.Equal(t, "2GiB", m.String())
	require.NoError(t, m.Set("auto"))
	require.Zero(t, m)
	require.ErrorContains(t, m.Set("much"), "write auto for a share")
	require.ErrorContains(t, m.Set("0"), "at least 16 MiB")
}
