package shardset

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"docstore/internal/checksum"
	"docstore/internal/vfs"
)

// Names and limits of the files of several shards.
const (
	checkpointName = "CURSOR"
	dictionaryName = "DICTIONARY"

	fileFormat   = 1
	maxFileBytes = 1 << 20
)

var (
	errDamaged     = errors.New("file is damaged")
	errNewerFormat = errors.New("file has a newer format; use a later version of the program")
)

// writeFile durably replaces a file by the JSON of content and its checksum.
func writeFile(fsys vfs.FS, name string, content any) error {
	line, err := json.Marshal(content)
	if err != nil {
		return fmt.Errorf("shardset: encoding %s: %w", name, err)
	}
	line = append(line, '\n')
	line = fmt.Appendf(line, "%08x\n", checksum.Of(line))
	if len(line) > maxFileBytes {
		return fmt.Errorf("shardset: writing %s: it has %d bytes, at most %d are allowed", name, len(line), maxFileBytes)
	}
	if err := vfs.WriteFileAtomic(fsys, name, line); err != nil {
		return fmt.Errorf("shardset: writing %s: %w", name, err)
	}
	return nil
}

// readFile reads a file that writeFile has written. The error matches fs.ErrNotExist,
// errDamaged or errNewerFormat, or is another one of the file system.
func readFile(fsys vfs.FS, name string, content any) error {
	info, err := fsys.Stat(name)
	if err != nil {
		return fmt.Errorf("shardset: reading %s: %w", name, err)
	}
	if info.Size > maxFileBytes {
		return fmt.Errorf("shardset: %s: %w: it has %d bytes, at most %d are allowed", name, errDamaged, info.Size, maxFileBytes)
	}
	data, err := vfs.ReadFile(fsys, name)
	if err != nil {
		return fmt.Errorf("shardset: reading %s: %w", name, err)
	}
	if err := parseFile(data, content); err != nil {
		return fmt.Errorf("shardset: %s: %w", name, err)
	}
	return nil
}

func parseFile(data []byte, content any) error {
	end := bytes.IndexByte(data, '\n') + 1
	line, sum := data[:end], data[end:]
	if want := fmt.Sprintf("%08x\n", checksum.Of(line)); end == 0 || string(sum) != want {
		return fmt.Errorf("%w: its checksum is %q, its content has %q", errDamaged, sum, want)
	}
	var version struct {
		Format int `json:"format"`
	}
	if err := json.Unmarshal(line, &version); err != nil {
		return fmt.Errorf("%w: %w", errDamaged, err)
	}
	if version.Format > fileFormat {
		return errNewerFormat
	}
	decoder := json.NewDecoder(bytes.NewReader(line))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(content); err != nil {
		return fmt.Errorf("%w: %w", errDamaged, err)
	}
	if version.Format != fileFormat {
		return fmt.Errorf("%w: its format is %d", errDamaged, version.Format)
	}
	return nil
}
