package server

import (
	"fmt"
	"io/fs"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/docservice/server/internal/machine"
)

// TestMemoryOfMachines checks the defaults from a small container to a large machine.
func TestMemoryOfMachines(t *testing.T) {
	const mib, gib = 1 << 20, 1 << 30
	for _, test := range []struct {
		name        string
		flag        int64
		machine     machine.Memory
		memory, goL int64
	}{
		{"container of 512 MiB", 0, machine.Memory{Bytes: 512 * mib, Limited: true}, 512 * mib / 6, 512 * mib / 100 * 85},
		{"container of 64 MiB", 0, machine.Memory{Bytes: 64 * mib, Limited: true}, MinMemory, 64 * mib / 100 * 85},
		{"container of 8 GiB", 0, machine.Memory{Bytes: 8 * gib, Limited: true}, 8 * gib / 6, 8 * gib / 6 * 3},
		{"machine of 2 GiB", 0, machine.Memory{Bytes: 2 * gib}, 2 * gib / 6, 2 * gib / 6 * 3},
		{"machine of 256 GiB", 0, machine.Memory{Bytes: 256 * gib}, 256 * gib / 6, 256 * gib / 6 * 3},
		{"not Linux", 0, machine.Memory{}, unknownMemory, 3 * unknownMemory},
		{"given", 64 * mib, machine.Memory{Bytes: 256 * gib}, 64 * mib, 512 * mib},
	} {
		p := planMemory(test.flag, test.machine)
		require.Equal(t, test.memory, p.memory, test.name)
		require.Equal(t, test.goL, p.goLimit, test.name)
		require.NotEmpty(t, p.why, test.name)
		require.True(t, p.fits(), test.name)
		s := shareMemory(p.memory)
		require.Equal(t, p.memory, s.index+s.dictionaries+s.messages, test.name)
	}
}

func TestMemoryThatTheMachineLacks(t *testing.T) {
	require.False(t, planMemory(2<<30, machine.Memory{Bytes: 1 << 30, Limited: true}).fits())
	require.True(t, planMemory(2<<30, machine.Memory{}).fits(), "not Linux")
	err := noAddressSpace(fmt.Errorf("map 1.seg: %w", syscall.ENOMEM), 2<<30)
	require.ErrorIs(t, err, syscall.ENOMEM)
	require.ErrorContains(t, err, "lower --memory, which is 2 GiB, or raise ulimit -v")
	require.Equal(t, fs.ErrNotExist, noAddressSpace(fs.ErrNotExist, 2<<30))
	require.NoError(t, noAddressSpace(nil, 2<<30))
}
