package vfs

import (
	"os"
	"syscall"
)

func deviceOf(stat *syscall.Stat_t) uint64 { return uint64(stat.Dev) }

// syncData is Sync, which asks for F_FULLFSYNC here: fsync alone leaves the data
// in the cache of the disk.
func syncData(f *os.File) error { return f.Sync() }

func mapPresent([]byte) error { return nil }
