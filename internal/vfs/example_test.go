package vfs_test

import (
	"fmt"

	"docstore/internal/vfs"
)

// The file is synced, but not its name in the directory.
func ExampleMem_CrashClone() {
	mem := vfs.NewMem()
	f, err := mem.Create("/document")
	if err != nil {
		panic(err)
	}
	fmt.Fprint(f, "content")
	if err := f.Sync(); err != nil {
		panic(err)
	}

	_, err = mem.CrashClone(vfs.KeepSynced).Stat("/document")
	fmt.Println(err)

	if err := mem.SyncDir("/"); err != nil {
		panic(err)
	}
	data, err := vfs.ReadFile(mem.CrashClone(vfs.KeepSynced), "/document")
	fmt.Println(string(data), err)
	// Output:
	// stat /document: file does not exist
	// content <nil>
}
