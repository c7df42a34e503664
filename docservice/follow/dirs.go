package follow

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"strconv"
	"strings"

	"docstore/docservice/collection"
	"docstore/internal/checksum"
	"docstore/internal/vfs"
	"docstore/queue/publish"

	"github.com/cockroachdb/errors"
)

// current is the content of the file CURRENT.
type current struct {
	State int         `json:"state"`
	Ref   publish.Ref `json:"manifest"` // number 0: nothing has been fetched yet
	// Extended: increments may have been added to the files of the manifest.
	Extended bool `json:"extended,omitempty"`
	// Next is a manifest whose files are being added: some of its entries may be here.
	Next publish.Ref `json:"next,omitzero"`
	// Goal is the goal of a start that was not reached.
	Goal goal `json:"goal,omitzero"`
	// Sum is the CRC-32C of the file without it, in hex. Earlier builds ignore it.
	Sum string `json:"sum,omitempty"`
}

// StateDir returns the directory of the collection.Collection that is served from the
// directory of a Follower, or dir itself if it is not one.
func StateDir(dir string) (string, error) {
	c, found, err := readCurrent(vfs.OS, dir)
	if err != nil || !found {
		return dir, err
	}
	f := &Follower{dir: dir}
	return f.statePath(c.State), nil
}

// CheckpointIndex is collection.CheckpointIndex for a directory of a Follower or of a
// collection. A Follower that opens target fetches the files of the queue.
func CheckpointIndex(dir, target string, logger *slog.Logger) error {
	return checkpointIndex(dir, target, func(dir, target string) error { return collection.CheckpointIndex(vfs.OS, dir, target, logger) })
}

// checkpointIndex is CheckpointIndex with the function that copies an index. A Follower may
// use dir. Its index advances before CURRENT states it, and never beyond CURRENT.Next. So CURRENT
// is read after the index was copied.
func checkpointIndex(dir, target string, copyIndex func(dir, target string) error) error {
	before, found, err := readCurrent(vfs.OS, dir)
	if err != nil {
		return err
	}
	if !found {
		return copyIndex(dir, target)
	}
	if err := vfs.MakeDir(vfs.OS, target); err != nil {
		return err
	}
	from, to := &Follower{dir: dir}, &Follower{dir: target, fs: vfs.OS}
	for {
		copied := to.statePath(before.State)
		err := copyIndex(from.statePath(before.State), copied)
		after, _, readErr := readCurrent(vfs.OS, dir)
		switch {
		case readErr != nil:
			return readErr
		case after.State == before.State && err == nil:
			return to.save(after)
		case after.State == before.State:
			return err
		}
		// Another state was served meanwhile, and the one that was copied is removed.
		if err := vfs.OS.RemoveAll(copied); err != nil {
			return err
		}
		before = after
	}
}

// readCurrent reads the file CURRENT of a directory, if there is one.
func readCurrent(fsys vfs.FS, dir string) (c current, found bool, err error) {
	content, err := readFile(fsys, filepath.Join(dir, currentName))
	if errors.Is(err, fs.ErrNotExist) {
		return current{}, false, nil
	}
	if err != nil {
		return current{}, false, err
	}
	if c, err = parseCurrent(content); err != nil {
		return current{}, false, errors.Wrapf(err, "%s: restart the server, and the collection is fetched again", filepath.Join(dir, currentName))
	}
	return c, true, nil
}

// errCurrentDamaged means that the content of CURRENT has changed since it was written.
var errCurrentDamaged = errors.New("the file is damaged")

// parseCurrent parses CURRENT. The files of earlier builds have no checksum.
func parseCurrent(content []byte) (c current, err error) {
	if err := json.Unmarshal(content, &c); err != nil || c.State < 1 {
		return current{}, errors.Wrapf(errCurrentDamaged, "state %d: %v", c.State, err)
	}
	sum := c.Sum
	c.Sum = ""
	line, err := json.Marshal(c)
	if err != nil {
		return current{}, err
	}
	if want := sumOf(line); sum != "" && sum != want {
		return current{}, errors.Wrapf(errCurrentDamaged, "its checksum is %q, its content has %q", sum, want)
	}
	return c, nil
}

func sumOf(line []byte) string { return fmt.Sprintf("%08x", checksum.Of(line)) }

// openCurrent opens the collection that CURRENT names, or the first one.
func (f *Follower) openCurrent() error {
	if err := vfs.MakeDir(f.fs, f.dir); err != nil {
		return err
	}
	present, found, err := readCurrent(f.fs, f.dir)
	if errors.Is(err, errCurrentDamaged) {
		f.logger.Error("the collection is fetched again: it is not known what its files are", "error", err)
		found, err = false, nil
	}
	if err == nil && !found {
		// Without CURRENT, states are leftovers of an unknown manifest.
		if err = f.removeStates(""); err == nil {
			present = current{State: 1}
			err = f.save(present)
		}
	}
	if err != nil {
		return err
	}
	f.current, f.state = present, present.State
	if err := f.removeOthers(); err != nil {
		return err
	}
	f.collection, err = f.openState(present.State, true)
	return err
}

// maxCurrentBytes is more than a CURRENT file has.
const maxCurrentBytes = 4 << 10

func readFile(fsys vfs.FS, path string) ([]byte, error) {
	file, err := fsys.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	content := make([]byte, min(info.Size, maxCurrentBytes))
	_, err = file.ReadAt(content, 0)
	return content, err
}

func (f *Follower) save(c current) error {
	content, err := json.Marshal(c)
	if err == nil {
		c.Sum = sumOf(content)
		content, err = json.Marshal(c)
	}
	if err != nil {
		return err
	}
	return vfs.WriteFileAtomic(f.fs, filepath.Join(f.dir, currentName), content)
}

// change changes CURRENT.
func (f *Follower) change(edit func(*current)) error {
	after := f.current
	edit(&after)
	if after == f.current {
		return nil
	}
	if err := f.save(after); err != nil {
		return err
	}
	f.current = after
	return nil
}

func (f *Follower) statePath(state int) string {
	return filepath.Join(f.dir, fmt.Sprintf("%s%04d", statePrefix, state))
}

func (f *Follower) queuePath(state int) string { return filepath.Join(f.statePath(state), queueName) }

func (f *Follower) checkpointPath(number uint64) string {
	return filepath.Join(f.dir, fmt.Sprintf("%s%010d", checkpointPrefix, number))
}

// parseCheckpoint returns the number of the manifest in the name of a checkpoint.
func parseCheckpoint(name string) (number uint64, ok bool) {
	digits, found := strings.CutPrefix(name, checkpointPrefix)
	number, err := strconv.ParseUint(digits, 10, 64)
	return number, found && err == nil
}

// openState opens the collection of a state, whose directories are created if necessary.
// behind: it finds no id missing before settle allows it.
func (f *Follower) openState(state int, behind bool) (*collection.Collection, error) {
	for _, dir := range []string{f.statePath(state), f.queuePath(state)} {
		if err := vfs.MakeDir(f.fs, dir); err != nil {
			return nil, err
		}
	}
	options := f.options.Collection
	options.Behind = behind
	return collection.Open(f.name, f.queuePath(state), f.statePath(state), &options)
}

// removeOthers removes states other than the served one, and incomplete checkpoints.
func (f *Follower) removeOthers() error { return f.removeStates(filepath.Base(f.statePath(f.state))) }

// removeStates removes the states except one, and incomplete checkpoints.
func (f *Follower) removeStates(except string) error {
	names, err := f.fs.List(f.dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		leftover := strings.HasPrefix(name, statePrefix) && name != except ||
			strings.HasPrefix(name, checkpointPrefix) && strings.HasSuffix(name, newSuffix)
		if leftover {
			if err := f.fs.RemoveAll(filepath.Join(f.dir, name)); err != nil {
				return err
			}
		}
	}
	return nil
}
