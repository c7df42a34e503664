package offheap

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

func mapRegion(bytes, sparseBytes int) Region {
	huge := bytes - sparseBytes
	room := bytes
	if huge >= hugeBytes {
		room += hugeBytes // to align the huge pages
	}
	mapped, err := unix.Mmap(-1, 0, room, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE|unix.MAP_NORESERVE)
	if err != nil {
		return Region{}
	}
	r := Region{bytes: mapped[:bytes:bytes], mapped: mapped, sparse: bytes}
	if huge >= hugeBytes {
		r.sparse = sparseBytes
		first := uintptr(unsafe.Pointer(unsafe.SliceData(mapped))) + uintptr(sparseBytes)
		skip := int(-first & (hugeBytes - 1))
		r.bytes = mapped[skip : skip+bytes : skip+bytes]
		// Huge pages are only an optimization.
		_ = unix.Madvise(mapped[skip+sparseBytes:skip+sparseBytes+huge&^(hugeBytes-1)], unix.MADV_HUGEPAGE)
	}
	return r
}

func unmap(mapped []byte) {
	if err := unix.Munmap(mapped); err != nil {
		panic("offheap: a region was released twice: " + err.Error())
	}
}
