package vfs

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

func deviceOf(stat *syscall.Stat_t) uint64 { return stat.Dev }

func syncData(f *os.File) error { return withDescriptor(f, "fdatasync", unix.Fdatasync) }
