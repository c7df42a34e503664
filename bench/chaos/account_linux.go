package main

import (
	"encoding/binary"
	"fmt"
	"os"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// maxCalls bounds the calls of a run; it is even.
const maxCalls = 32 << 20

// An account counts the executions of each call in a file that all servers map, so that the counts
// survive their processes.
type account struct {
	counts []uint32
}

func openAccount(f *os.File) (*account, error) {
	if err := f.Truncate(4 * maxCalls); err != nil {
		return nil, err
	}
	mapped, err := unix.Mmap(int(f.Fd()), 0, 4*maxCalls, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("chaos: mapping the account: %w", err)
	}
	return &account{unsafe.Slice((*uint32)(unsafe.Pointer(unsafe.SliceData(mapped))), maxCalls)}, nil
}

func (a *account) begun(call uint64) { atomic.AddUint32(&a.counts[call], 1) }

func (a *account) count(call uint64) uint32 { return atomic.LoadUint32(&a.counts[call]) }

const (
	requestBytes  = 200
	responseBytes = 600
)

// Requests and responses are functions of the call's number, so that those of different calls differ.

func appendRequest(dst []byte, call uint64) []byte { return appendPattern(dst, call, requestBytes) }

func appendResponse(dst []byte, call uint64) []byte {
	return appendPattern(dst, ^call, responseBytes)
}

func appendPattern(dst []byte, seed uint64, n int) []byte {
	dst = binary.LittleEndian.AppendUint64(dst, seed)
	for i := 8; i < n; i += 8 {
		seed = seed*6364136223846793005 + 1442695040888963407
		dst = binary.LittleEndian.AppendUint64(dst, seed)
	}
	return dst
}

// callOf returns the number of a request, and false if it is corrupted.
func callOf(request []byte) (call uint64, ok bool) {
	if len(request) != requestBytes {
		return 0, false
	}
	call = binary.LittleEndian.Uint64(request)
	return call, call < maxCalls && string(appendRequest(nil, call)) == string(request)
}
