package follow_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"docstore/docservice/collection"
	"docstore/docservice/follow"
	"docstore/internal/testseed"
	"docstore/internal/vfs"
	"docstore/queue/bucket"
	"docstore/queue/publish"

	"github.com/stretchr/testify/require"
)

// startFromCheckpoint checkpoints a server, whose state changes before its index is copied, and
// starts another one from the checkpoint. For both, the manifest is pinned.
func (f *fleet) startFromCheckpoint(from *server, pinned uint64, before func()) *server {
	f.t.Helper()
	target := filepath.Join(f.dir, "checkpointed")
	changed := false
	require.NoError(f.t, follow.CheckpointIndexWith(from.dir, target, func(dir, target string) error {
		if !changed {
			changed = true
			before()
		}
		return collection.CheckpointIndex(vfs.OS, dir, target, nil)
	}))
	f.pin(pinned, "")
	return f.startServer("", filepath.Base(target))
}

// TestCheckpointDuringAdvance: a checkpoint of an index that has advanced during the copy is not
// one of the manifest before.
func TestCheckpointDuringAdvance(t *testing.T) {
	f := newFleet(t)
	f.publishEntries(false, nil, [2]string{"id-0", "first"})
	f.announce(1)
	s := f.startServer("", "server")
	s.waitFor(1)
	other := f.startFromCheckpoint(s, 1, func() {
		f.publishEntries(false, nil, [2]string{"id-0", "second"}, [2]string{"id-1", "second"})
		f.announce(2)
		s.waitFor(2)
	})
	other.waitFor(1)
	other.eventually(ready)
	other.waitFor(1)
}

// TestCheckpointDuringIncrement is TestCheckpointDuringAdvance for an increment.
func TestCheckpointDuringIncrement(t *testing.T) {
	s := newStream(t, newFleet(t))
	server := s.startServer("", "server")
	server.waitFor(1)
	other := s.startFromCheckpoint(server, 1, func() {
		s.putDocument("id-0", "of an increment")
		s.extend()
		s.waitForAnswers(server, s.documents)
	})
	other.waitFor(1)
	other.eventually(ready)
	other.waitFor(1)
}

// TestCheckpointDuringMove: the state that is being copied is replaced by another one.
func TestCheckpointDuringMove(t *testing.T) {
	f := newFleet(t)
	f.publishEntries(false, nil, [2]string{"id-0", "first"})
	f.publishEntries(false, nil, [2]string{"id-0", "second"})
	f.announce(2)
	s := f.startServer("", "server")
	s.waitFor(2)
	other := f.startFromCheckpoint(s, 1, func() {
		f.pin(1, "")
		s.waitFor(1)
	})
	other.waitFor(1)
	other.eventually(ready)
}

// TestPinAfterPartialAdvance pins the served manifest after some files of the next one have
// arrived. Their entries are not served any more, also after a restart. Until then the server is
// behind the pin.
func TestPinAfterPartialAdvance(t *testing.T) {
	for _, restart := range []bool{false, true} {
		rng, f := testseed.Rand(t), newFleet(t)
		var failing atomic.Bool
		f.bucket.Bucket = bucket.NewFault(f.bucket.Bucket, func(_ context.Context, operation, name string) *bucket.Failure {
			if failing.Load() && operation == "get" && strings.HasPrefix(name, "manifest/") {
				return &bucket.Failure{Err: bucket.ErrDenied}
			}
			return nil
		})
		f.publishEntries(false, nil, [2]string{"id-0", "first"})
		f.announce(1)
		s := f.startServer("", "server")
		s.waitFor(1)
		f.publishEntries(false, nil, [2]string{"id-0", "second"}, [2]string{"id-1", "second"})
		f.publish(rng, false)
		m, _, err := publish.FindManifest(t.Context(), f.bucket, 3, time.Now)
		require.NoError(t, err)
		objects, err := filepath.Glob(filepath.Join(f.dir, "bucket", "file", "*"+m.Files[2].Digest.String()))
		require.NoError(t, err)
		require.Len(t, objects, 1)
		require.NoError(t, os.Remove(objects[0]))
		f.announce(3)
		s.eventually(func(follow.Status) bool {
			document, err := s.get("id-0")
			return err == nil && document == "second"
		})
		if restart {
			require.NoError(t, s.close())
		}
		f.pin(1, "")
		failing.Store(true)
		if restart {
			s.start()
		}
		s.eventually(func(s follow.Status) bool { return s.Pin != nil })
		require.NotZero(t, s.follower.Status().Behind)
		failing.Store(false)
		s.eventually(func(s follow.Status) bool { return s.Behind.IsZero() })
		document, err := s.get("id-0")
		require.NoError(t, err)
		require.Equal(t, "first", document)
		s.waitFor(1)
	}
}

// TestDamagedCheckpoint returns to an earlier manifest after checkpoints of the index were damaged, or
// lost files: one before them is used, or none. They are removed.
func TestDamagedCheckpoint(t *testing.T) {
	for name, damage := range map[string]func(t *testing.T, checkpoint string){
		"tables":    overwriteTables,
		"no tables": func(t *testing.T, checkpoint string) { removeAll(t, checkpoint, "index-*", "*.table") },
		"no index":  func(t *testing.T, checkpoint string) { removeAll(t, checkpoint, "index-*") },
	} {
		for _, damaged := range [][]uint64{{2}, {1, 2}} {
			t.Run(fmt.Sprint(name, damaged), func(t *testing.T) {
				f := newFleet(t)
				s := f.startServer("", "server")
				for number := range uint64(3) {
					f.publishEntries(false, nil, [2]string{"id-0", fmt.Sprint("version ", number)})
					f.announce(number + 1)
					s.waitFor(number + 1)
					s.eventually(func(follow.Status) bool {
						_, err := os.Stat(s.checkpoint(number + 1))
						return err == nil
					})
				}
				for _, number := range damaged {
					damage(t, s.checkpoint(number))
				}
				f.pin(2, "")
				s.waitFor(2)
				document, err := s.get("id-0")
				require.NoError(t, err)
				require.Equal(t, "version 1", document)
				if slices.Contains(damaged, 1) {
					require.NoDirExists(t, s.checkpoint(1))
				}
				s.eventually(func(follow.Status) bool { // a checkpoint may be made now
					left, err := filepath.Glob(filepath.Join(s.dir, "*.new"))
					return err == nil && len(left) == 0
				})
			})
		}
	}
}

// TestRemovedIndex: a server follows the manifests although its index, which is open, was removed and
// cannot be copied.
func TestRemovedIndex(t *testing.T) {
	f := newFleet(t)
	s := f.startServer("", "server")
	f.publishEntries(false, nil, [2]string{"id-0", "first"})
	f.announce(1)
	s.waitFor(1)
	s.eventually(func(follow.Status) bool {
		_, err := os.Stat(s.checkpoint(1))
		return err == nil
	})
	removeAll(t, s.dir, "state-*", "index-*", "*")
	for number := range uint64(2) {
		f.publishEntries(false, nil, [2]string{"id-0", fmt.Sprint("version ", number)})
		f.announce(number + 2)
		s.waitFor(number + 2)
	}
}

// checkpoint returns the directory of the checkpoint of a manifest.
func (s *server) checkpoint(number uint64) string {
	return filepath.Join(s.dir, fmt.Sprintf("checkpoint-%010d", number))
}

// overwriteTables replaces the tables of a checkpoint, to which the served index has links.
func overwriteTables(t *testing.T, checkpoint string) {
	t.Helper()
	tables, err := filepath.Glob(filepath.Join(checkpoint, "index-*", "*.table"))
	require.NoError(t, err)
	require.NotEmpty(t, tables)
	for _, table := range tables {
		require.NoError(t, os.WriteFile(table+".new", []byte("damaged"), 0o600))
		require.NoError(t, os.Rename(table+".new", table))
	}
}

// removeAll removes what matches a pattern below a directory.
func removeAll(t *testing.T, dir string, pattern ...string) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(append([]string{dir}, pattern...)...))
	require.NoError(t, err)
	require.NotEmpty(t, names)
	for _, name := range names {
		require.NoError(t, os.RemoveAll(name))
	}
}
