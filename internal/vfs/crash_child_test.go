package vfs

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// lockChild takes a lock, reports it and waits to be killed.
func lockChild(name string) error {
	if _, err := OS.Lock(name, "the child"); err != nil {
		return err
	}
	fmt.Println("locked")
	// The runtime ends a process whose goroutines all wait for one another, but not one that
	// waits for a signal.
	interrupt := make(chan os.Signal, 1)
	signal.Notify(interrupt, os.Interrupt)
	<-interrupt
	return nil
}

func TestLockOfKilledProcessIsFree(t *testing.T) {
	name := filepath.Join(t.TempDir(), "LOCK")
	output, kill := startChild(t, "lock", name)
	_, err := bufio.NewReader(output).ReadString('\n')
	require.NoError(t, err)

	_, err = OS.Lock(name, "the parent")
	var locked *LockedError
	require.ErrorAs(t, err, &locked)
	assert.Equal(t, "the child", locked.Holder)

	kill()
	lock, err := OS.Lock(name, "the parent")
	require.NoError(t, err)
	require.NoError(t, lock.Close())
}

const appendCapacity = 8 << 20

// appendChild appends numbers to an append map and prints each after its append, until
// it is killed.
func appendChild(m AppendMap, err error) error {
	for n := uint64(1); err == nil; n++ {
		if _, err = m.Append(binary.LittleEndian.AppendUint64(nil, n)); err == nil {
			fmt.Println(n)
		}
	}
	return err
}

func TestKilledProcessLosesNothingAppended(t *testing.T) {
	for _, child := range []string{"mapped", "buffered"} {
		t.Run(child, func(t *testing.T) {
			name := filepath.Join(t.TempDir(), "log")
			output, kill := startChild(t, child, name)
			lines := bufio.NewReader(output)
			var acknowledged uint64
			for line, err := lines.ReadString('\n'); !errors.Is(err, io.EOF); line, err = lines.ReadString('\n') {
				require.NoError(t, err)
				acknowledged, err = strconv.ParseUint(line[:len(line)-1], 10, 64)
				require.NoError(t, err)
				if acknowledged == 3000 {
					kill()
				}
			}
			require.GreaterOrEqual(t, acknowledged, uint64(3000))
			data, err := ReadFile(OS, name)
			require.NoError(t, err)
			for n := uint64(1); n <= acknowledged; n++ {
				require.Equal(t, n, binary.LittleEndian.Uint64(data[8*(n-1):]))
			}
		})
	}
}
