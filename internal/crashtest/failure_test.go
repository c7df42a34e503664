package crashtest

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/internal/vfs"
)

// script runs operations on a file and returns the steps that failed.
func script(fs vfs.FS) (failed []string) {
	note := func(step string, err error) bool {
		if err != nil {
			failed = append(failed, step)
		}
		return err == nil
	}
	f, err := fs.Create("a")
	if note("create", err) {
		for range 2 {
			_, err = f.Write([]byte("1234"))
			note("write", err)
		}
		_, err = f.ReadAt(make([]byte, 4), 0)
		note("read", err)
		note("sync", f.Sync())
		note("close", f.Close())
	}
	note("sync dir", fs.SyncDir("."))
	return failed
}

func TestFailures(t *testing.T) {
	want := map[string][][]string{ // by k
		"an operation fails": {{"create"}, {"write"}, {"write"}, {"read"}, {"sync"}, {"sync dir"}},
		"the disk fails": {{"create", "sync dir"}, {"write", "write", "read", "sync", "sync dir"},
			{"write", "read", "sync", "sync dir"}, {"read", "sync", "sync dir"}, {"sync", "sync dir"}, {"sync dir"}},
		"the disk is full": {{"create"}, {"write", "write", "read"}, {"write"}}, // the file is empty, so there is no read
		"a write is short": {{"write"}, {"write"}},
		"a read is short":  {{"read"}},
		"a sync fails":     {{"sync"}, {"sync dir"}},
		"syncs fail":       {{"sync", "sync dir"}, {"sync dir"}},

		"a sync loses pages":                 {{"sync"}},
		"a sync loses pages, and memory too": {{"sync"}},
	}
	for _, failure := range Failures() {
		t.Run(failure.Name, func(t *testing.T) {
			require.Contains(t, want, failure.Name)
			for i, failed := range append(want[failure.Name], nil) { // nil: k is beyond the last
				mem := vfs.NewMem()
				disk := failure.At(int64(i+1), mem)
				require.Equal(t, failed, script(disk), "at %d", i+1)
				require.Equal(t, len(failed) > 0, disk.Failed() > 0)
			}
		})
	}
}

func TestHeal(t *testing.T) {
	for _, failure := range Failures() {
		disk := failure.At(1, vfs.NewMem())
		disk.Heal()
		require.Empty(t, script(disk), failure.Name)
		require.Zero(t, disk.Failed())
	}
}

// TestIntermittentDisk: a failure starts with each call of Fail.
func TestIntermittentDisk(t *testing.T) {
	mem := vfs.NewMem()
	disk := NewIntermittentDisk(mem)
	for range 2 {
		for _, failure := range Failures() {
			disk.Fail(failure)
			require.Equal(t, script(failure.At(1, vfs.NewMem())), script(disk), failure.Name)
			disk.Heal()
			require.NoError(t, mem.RemoveAll("a"))
			require.Empty(t, script(disk))
			require.NoError(t, mem.RemoveAll("a"))
		}
	}
	require.Greater(t, disk.Failed(), int64(2*len(Failures())))
}

func TestShortWriteLeavesPrefix(t *testing.T) {
	for _, failure := range Failures() {
		if failure.Name == "a write is short" {
			mem := vfs.NewMem()
			require.Equal(t, []string{"write"}, script(failure.At(2, mem)))
			content, err := vfs.ReadFile(mem, "a")
			require.NoError(t, err)
			require.Equal(t, "123412", string(content))
		}
	}
}

// TestSyncLosesPages: a later sync does not make lost pages durable.
func TestSyncLosesPages(t *testing.T) {
	for _, failure := range Failures() {
		if !failure.loses {
			continue
		}
		mem := vfs.NewMem()
		require.Equal(t, []string{"sync"}, script(failure.At(1, mem)))
		content, err := vfs.ReadFile(mem, "a")
		require.NoError(t, err)
		require.Equal(t, map[bool]string{false: "12341234", true: "\x00\x00\x00\x00\x00\x00\x00\x00"}[failure.Evicts], string(content))
		f, err := mem.OpenAppend("a")
		require.NoError(t, err)
		require.NoError(t, f.Sync())
		content, err = vfs.ReadFile(mem.CrashClone(vfs.KeepSynced), "a")
		require.NoError(t, err)
		require.Equal(t, "\x00\x00\x00\x00\x00\x00\x00\x00", string(content))
	}
}

// TestWays: each way leaves states that the others do not.
func TestWays(t *testing.T) {
	mem := vfs.NewMem()
	f, err := mem.Create("a")
	require.NoError(t, err)
	_, err = f.Write([]byte("synced"))
	require.NoError(t, err)
	require.NoError(t, f.Sync())
	require.NoError(t, mem.SyncDir("."))
	_, err = f.Write([]byte(" and not"))
	require.NoError(t, err)
	require.NoError(t, mem.Rename("a", "b"))
	left := map[string]map[string]bool{} // states by way
	for seed := range uint64(50) {
		for _, way := range Ways(rand.New(rand.NewPCG(seed, 0))) {
			if left[way.Name] == nil {
				left[way.Name] = map[string]bool{}
			}
			names, err := mem.CrashClone(way.Keep).List(".")
			require.NoError(t, err)
			content, err := vfs.ReadFile(mem.CrashClone(way.Keep), names[0])
			require.NoError(t, err)
			left[way.Name][names[0]+": "+string(content)] = true
		}
	}
	require.Len(t, left, 5)
	require.Equal(t, map[string]bool{"a: synced": true}, left["only what was synced"])
	require.Equal(t, map[string]bool{"b: synced and not": true}, left["the process alone"])
	require.Equal(t, map[string]bool{"a: synced and not": true, "b: synced and not": true}, left["names reordered"])
	require.Greater(t, len(left["some pages and names"]), 4)
	require.Greater(t, len(left["the last write torn"]), 4)
	for torn := range left["the last write torn"] {
		require.Contains(t, torn, "b: synced")
	}
}
