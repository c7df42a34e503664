package vfs

// StartWriteback asks the kernel to begin writing cached bytes of a file and does not
// wait: the disk works while the file grows, and the Sync that must follow has less to
// write. It makes nothing durable and has no effect if the system has no such call or
// the file is not of OS. Errors are left for Sync to report.
func StartWriteback(f File, offset, bytes int64) {
	if file, ok := f.(*osFile); ok {
		startWriteback(file.File, offset, bytes)
	}
}
