package main

import (
	"encoding/binary"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"docstore/bench/internal/process"
)

func TestMain(m *testing.M) { process.TestMain(m, main) }

// TestChaos applies every fault to Boxcar for a short time and checks each call.
func TestChaos(t *testing.T) {
	for name, hedgeAfter := range map[string]time.Duration{"boxcar": 0, "boxcar-hedged": hedgeAfter} {
		t.Run(name, func(t *testing.T) {
			trial, err := newTrial(hedgeAfter, 1200*time.Millisecond)
			if errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOENT) {
				t.Skip("no network namespaces here: ", err)
			}
			require.NoError(t, err)
			for i, f := range faults {
				seen, err := trial.apply(f, i%serverCount)
				require.NoError(t, err, f.name)
				require.NotZero(t, seen.twice.calls, f.name)
				require.NotZero(t, seen.once.calls, f.name)
			}
			require.NotZero(t, trial.link.lost.Load())
			require.NotZero(t, trial.link.corrupted.Load())
			a, err := trial.end()
			require.NoError(t, err)
			require.True(t, a.faultless(), "%+v", a)
			t.Logf("%+v", a)
		})
	}
}

// A corrupted segment must pass the checksum of TCP.
func TestCorruptedSegmentHasRightChecksum(t *testing.T) {
	packet := make([]byte, 20+32+101)
	packet[0], packet[9] = 0x45, 6
	segment := packet[20:]
	segment[12] = 8 << 4
	for i := range segment[32:] {
		segment[32+i] = byte(i * 7)
	}
	binary.BigEndian.PutUint16(segment[16:], ^onesSum(segment))
	require.Equal(t, uint16(0xffff), onesSum(segment))
	for range 1000 {
		before := string(packet)
		require.True(t, corrupt(packet))
		require.NotEqual(t, before[52:], string(packet[52:]))
		require.Equal(t, before[:36], string(packet[:36]))
		require.Equal(t, uint16(0xffff), onesSum(segment))
	}
	require.False(t, corrupt(packet[:52]), "no data")
	packet[9] = 17
	require.False(t, corrupt(packet), "no TCP")
}

// onesSum is the sum that TCP's checksum is the complement of, without the pseudo
// header.
func onesSum(b []byte) uint16 {
	sum := uint32(0)
	for ; len(b) > 1; b = b[2:] {
		sum += uint32(binary.BigEndian.Uint16(b))
	}
	if len(b) == 1 {
		sum += uint32(b[0]) << 8
	}
	for sum > 0xffff {
		sum = sum&0xffff + sum>>16
	}
	return uint16(sum)
}

func TestOnlyACallersRequestIsOne(t *testing.T) {
	request := appendRequest(nil, 7)
	call, ok := callOf(request)
	require.True(t, ok)
	require.Equal(t, uint64(7), call)
	for i := range request {
		request[i] ^= 1
		if call, ok := callOf(request); ok {
			require.NotEqual(t, uint64(7), call)
		}
		request[i] ^= 1
	}
	require.NotEqual(t, appendResponse(nil, 7), appendResponse(nil, 8))
}
