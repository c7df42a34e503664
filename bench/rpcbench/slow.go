package main

import (
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// The methods. Each contestant serves benchMethod, Boxcar the others too.
const (
	benchMethod = "/bench/Call"
	bulkMethod  = "/bench/Bulk"
	sleepMethod = "/bench/Sleep"
	faultMethod = "/bench/Fault"
)

const (
	sleepTime  = 10 * time.Millisecond
	faultBytes = 1 << 20 // are read through the page table for each call
)

// slowDown delays a slow method.
func slowDown(method string) error {
	switch method {
	case sleepMethod:
		time.Sleep(sleepTime)
	case faultMethod:
		return faulty.touch()
	}
	return nil
}

var faulty faultyFile

// A faultyFile is a mapped file that is not in memory when it is touched.
type faultyFile struct {
	mu   sync.Mutex
	file *os.File
	data []byte
	sum  byte
}

// touch drops the file from memory and reads a byte of each page.
func (f *faultyFile) touch() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.data == nil {
		if err := f.open(); err != nil {
			return err
		}
	}
	if err := unix.Madvise(f.data, unix.MADV_DONTNEED); err != nil {
		return err
	}
	if err := unix.Fadvise(int(f.file.Fd()), 0, faultBytes, unix.FADV_DONTNEED); err != nil {
		return err
	}
	for i := 0; i < len(f.data); i += os.Getpagesize() {
		f.sum += f.data[i]
	}
	return nil
}

func (f *faultyFile) open() (err error) {
	if f.file, err = os.CreateTemp("", "rpcbench"); err != nil {
		return err
	}
	if err := os.Remove(f.file.Name()); err != nil { // the open file remains usable
		return err
	}
	if _, err := f.file.Write(make([]byte, faultBytes)); err != nil {
		return err
	}
	if err := f.file.Sync(); err != nil { // only clean pages can be dropped
		return err
	}
	f.data, err = unix.Mmap(int(f.file.Fd()), 0, faultBytes, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return err
	}
	return unix.Madvise(f.data, unix.MADV_RANDOM) // no reading ahead
}
