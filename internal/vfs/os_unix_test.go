//go:build linux || darwin

package vfs

import (
	"os"
	"path/filepath"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// mappedThenCut maps a file and truncates it, so that accessing the bytes raises
// SIGBUS.
func mappedThenCut(t *testing.T) Mapping {
	t.Helper()
	name := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(name, make([]byte, 3*os.Getpagesize()), 0o600))
	f, err := OS.Open(name)
	require.NoError(t, err)
	defer f.Close()
	m, err := f.Map(int64(3 * os.Getpagesize()))
	require.NoError(t, err)
	t.Cleanup(func() { m.Close() })
	require.NoError(t, os.Truncate(name, int64(os.Getpagesize())))
	return m
}

func TestGuardConvertsSIGBUSToError(t *testing.T) {
	m := mappedThenCut(t)
	page := os.Getpagesize()
	target := make([]byte, 100)
	for what, touch := range map[string]func(){
		"load": func() { target[0] = m.Bytes()[page] },
		"copy": func() { copy(target, m.Bytes()[page:]) }, // faults in assembly
	} {
		err := Guard(touch)
		assert.ErrorIs(t, err, ErrFault, what)
		var fault *FaultError
		require.ErrorAs(t, err, &fault, what)
		assert.Equal(t, uintptr(unsafe.Pointer(&m.Bytes()[page])), fault.Address, what)
	}
	require.NoError(t, Guard(func() { target[0] = m.Bytes()[page-1] }), "the remaining page is readable")
}

func TestLinkAcrossDevices(t *testing.T) {
	const elsewhere = "/dev/shm"
	dir := t.TempDir()
	here, err := OS.Stat(dir)
	require.NoError(t, err)
	there, err := OS.Stat(elsewhere)
	if err != nil || here.ID.Device == there.ID.Device {
		t.Skip("only one file system available")
	}
	r := testFS{FS: OS, dir: dir}
	r.write(t, "a", "")
	assert.ErrorIs(t, OS.Link(r.path("a"), filepath.Join(elsewhere, filepath.Base(dir))), ErrCrossDevice)
}
