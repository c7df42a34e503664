//go:build !linux

package vfs

func newAppendMap(f *osFile, capacity int64) (AppendMap, error) {
	return &bufferedAppend{file: f, capacity: capacity}, nil
}
