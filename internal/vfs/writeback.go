package vfs

// StartWriteback has the kernel begin to write bytes of a file that lie in its
// memory, and does not wait for that: the disk works while the file grows, and less
// is left for the Sync that has to follow. It is a hint that makes nothing durable,
// and nothing happens where there is no such call, or the file is not of OS. What
// goes wrong is for Sync to tell.
func StartWriteback(f File, offset, bytes int64) {
	if file, ok := f.(*osFile); ok {
		startWriteback(file.File, offset, bytes)
	}
}
