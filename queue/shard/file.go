package shard

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"docstore/internal/checksum"
	"docstore/internal/vfs"
)

const (
	// LayoutName is the name of the file with the layout of several shards.
	LayoutName = "LAYOUT"

	layoutFormat   = 1
	maxLayoutBytes = 4 << 10
)

// Errors of Read and Write.
var (
	// ErrCorrupt: the file with the layout is damaged.
	ErrCorrupt = errors.New("shard: layout is damaged")
	// ErrNewerFormat: a later version of the program wrote the layout.
	ErrNewerFormat = errors.New("shard: layout has a newer format; use a later version of the program")
	// ErrDiffers: the directory has another layout.
	ErrDiffers = errors.New("shard: directory has another layout")
)

// layoutFile is the content of the file.
type layoutFile struct {
	Format int `json:"format"`
	Layout
	// CRC is the CRC-32C of the file without this field, in hex.
	CRC string `json:"crc,omitempty"`
}

func (f layoutFile) encode() []byte {
	content, err := json.Marshal(f)
	if err != nil {
		panic(err) // numbers and a string
	}
	return content
}

// sum returns the CRC field.
func (f layoutFile) sum() string {
	f.CRC = ""
	return fmt.Sprintf("%08x", checksum.Of(f.encode()))
}

// Read returns the layout of the collection in a directory: one shard if there is no file with
// another layout, also if the directory does not exist.
func Read(fsys vfs.FS, dir string) (Layout, error) {
	name := filepath.Join(dir, LayoutName)
	info, err := fsys.Stat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return Layout{Shards: 1}, nil
	}
	if err != nil {
		return Layout{}, fmt.Errorf("shard: reading the layout: %w", err)
	}
	if info.Size > maxLayoutBytes {
		return Layout{}, damaged(name, fmt.Errorf("it has %d bytes, at most %d are allowed", info.Size, maxLayoutBytes))
	}
	content, err := vfs.ReadFile(fsys, name)
	if err != nil {
		return Layout{}, fmt.Errorf("shard: reading the layout: %w", err)
	}
	l, err := parseLayout(content)
	if err != nil && !errors.Is(err, ErrNewerFormat) {
		err = damaged(name, err)
	} else if err != nil {
		err = fmt.Errorf("%w: %s", err, name)
	}
	return l, err
}

func damaged(name string, err error) error {
	return fmt.Errorf("%w: %s: %w; restore the file: without it no document can be found", ErrCorrupt, name, err)
}

func parseLayout(content []byte) (Layout, error) {
	// The field exists in every format.
	var version struct {
		Format int `json:"format"`
	}
	if err := json.Unmarshal(content, &version); err != nil {
		return Layout{}, err
	}
	if version.Format > layoutFormat {
		return Layout{}, ErrNewerFormat
	}
	if version.Format != layoutFormat {
		return Layout{}, fmt.Errorf("its format is %d, want %d", version.Format, layoutFormat)
	}
	var f layoutFile
	decoder := json.NewDecoder(bytes.NewReader(content))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&f); err != nil {
		return Layout{}, err
	}
	if sum := f.sum(); f.CRC != sum {
		return Layout{}, fmt.Errorf("its checksum is %q, its content has %q", f.CRC, sum)
	}
	if f.Shards == 1 {
		return Layout{}, errors.New("shard: it has 1 shard, want at least 2; a collection of one shard has no layout")
	}
	return f.Layout, f.Check()
}

// Write durably writes the layout of a collection before its first shard is created. The
// caller holds the lock of the directory. One shard needs no file. A directory that has the
// same layout stays as it is; if it has another one of several shards, the error is
// ErrDiffers: a layout never changes.
func Write(fsys vfs.FS, dir string, l Layout) error {
	if err := l.Check(); err != nil {
		return err
	}
	switch has, err := Read(fsys, dir); {
	case err != nil || has == l:
		return err
	case has.Shards > 1:
		return fmt.Errorf("%w: %s has %d shards and the seed %d, not %d and %d; write another number of shards into another directory",
			ErrDiffers, dir, has.Shards, has.Seed, l.Shards, l.Seed)
	}
	if err := vfs.MakeDir(fsys, dir); err != nil {
		return fmt.Errorf("shard: creating the directory: %w", err)
	}
	f := layoutFile{Format: layoutFormat, Layout: l}
	f.CRC = f.sum()
	if err := vfs.WriteFileAtomic(fsys, filepath.Join(dir, LayoutName), append(f.encode(), '\n')); err != nil {
		return fmt.Errorf("shard: writing the layout: %w", err)
	}
	return nil
}
