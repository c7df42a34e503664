// Package files reads the documents of the benchmarks and measures directories.
package files

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Lines calls fn for each line of a file, gzipped or not. line is valid until fn returns. A file without
// lines is an error.
func Lines(name string, fn func(line []byte) error) error {
	content, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	var in io.Reader = bytes.NewReader(content)
	if strings.HasSuffix(name, ".gz") {
		if in, err = gzip.NewReader(in); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 17<<20)
	n := 0
	for lines.Scan() {
		n++
		if err := fn(lines.Bytes()); err != nil {
			return fmt.Errorf("%s:%d: %w", name, n, err)
		}
	}
	if n == 0 && lines.Err() == nil {
		return fmt.Errorf("%s: no documents", name)
	}
	return lines.Err()
}

// Bytes returns the size of all files below a directory, except those whose names have a suffix, if it is
// not empty.
func Bytes(dir, except string) (total int64, err error) {
	err = filepath.WalkDir(dir, func(name string, entry os.DirEntry, err error) error {
		var info os.FileInfo
		if err == nil && !entry.IsDir() && (except == "" || !strings.HasSuffix(name, except)) {
			if info, err = entry.Info(); err == nil {
				total += info.Size()
			}
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil // a file that was removed meanwhile
		}
		return err
	})
	return total, err
}
