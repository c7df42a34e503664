package collection

import (
	"bytes"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"docstore/internal/testseed"
	"docstore/internal/vfs"
	"docstore/queue"
)

// keptResults returns the saved results of the background pass.
func (f *fixture) keptResults() map[segmentKey]finding {
	f.t.Helper()
	content, err := vfs.ReadFile(f.fs, firstIndex.verifiedPath(f.dir))
	if err != nil {
		return nil
	}
	require.Greater(f.t, len(content), verifiedHeaderBytes)
	seen, err := parseVerified(content, [16]byte(content[16:]))
	require.NoError(f.t, err)
	return seen
}

func (f *fixture) waitVerified(segments int) {
	f.t.Helper()
	require.Eventually(f.t, func() bool { return len(f.keptResults()) == segments }, patience, time.Millisecond)
}

// A restart reads only segments that were not verified before.
func TestVerifiedSegmentsAreNotReadAgain(t *testing.T) {
	var mu sync.Mutex
	read := map[string]int{}
	counting := vfs.NewFault(vfs.NewMem(), func(op vfs.Op) error {
		if op.Kind == vfs.OpReadAt {
			mu.Lock()
			read[filepath.Base(op.Name)] += op.Bytes
			mu.Unlock()
		}
		return nil
	})
	f := newFixture(t, counting, string(filepath.Separator))
	f.options.VerifyInterval = time.Millisecond
	for _, prefix := range []string{"first", "second"} {
		f.putMany(prefix, 500)
		f.seal()
	}
	c := f.ready()
	f.waitVerified(2)
	require.NoError(t, c.Close())

	mu.Lock()
	for _, id := range []queue.SegmentID{1, 2} {
		require.Greater(t, read[sealedName(id)], 30_000, "it has been verified")
	}
	clear(read)
	mu.Unlock()
	f.putMany("third", 500)
	f.seal()
	c = f.ready()
	f.waitVerified(3)
	mu.Lock()
	for _, id := range []queue.SegmentID{1, 2} {
		require.Less(t, read[sealedName(id)], 10_000, "segment %d: only the tail reads at its position", id)
	}
	mu.Unlock()
	require.NoError(t, c.Close())

	// Another file of the same name is verified.
	path, good := f.segment(1)
	replace(t, f.fs, path, flipped(t, good, documentOf("first-50")))
	c = f.ready()
	waitFor(t, c, "the damage is found", hasFault(1))
	require.NoError(t, c.Close())
	require.Len(t, f.keptResults(), 2, "the result of a damaged file is not saved")
	c = f.ready()
	waitFor(t, c, "it is found again", hasFault(1))
}

// A wrong or missing byte in the saved results only causes another verification.
func TestDamagedVerificationResults(t *testing.T) {
	f, _, _ := sealedFixture(t)
	f.options.VerifyInterval = time.Millisecond
	c := f.ready()
	f.waitVerified(2)
	id := *c.serving.Load().queueID.Load()
	require.NoError(t, c.Close())

	path := firstIndex.verifiedPath(f.dir)
	content, err := vfs.ReadFile(f.fs, path)
	require.NoError(t, err)
	refused := func(damaged []byte, at int) {
		t.Helper()
		replace(t, f.fs, path, damaged)
		v := newVerifiedFiles(f.fs, path)
		require.ErrorIs(t, v.load(id), errVerifiedUnusable, "byte %d", at)
		require.Empty(t, v.seen)
	}
	for i := range content {
		damaged := bytes.Clone(content)
		damaged[i] ^= 1 << (i % 8)
		refused(damaged, i)
		refused(content[:i], i)
	}
	replace(t, f.fs, path, content)
	require.ErrorIs(t, newVerifiedFiles(f.fs, path).load([16]byte{1}), errVerifiedUnusable, "another queue's")

	segment, good := f.segment(2)
	replace(t, f.fs, segment, flipped(t, good, documentOf("second-50")))
	replace(t, f.fs, path, content[:len(content)-1])
	c = f.ready()
	waitFor(t, c, "the damage is found", hasFault(2))
	require.NoError(t, c.Close())
	require.Len(t, f.keptResults(), 1)
}

// Saved results hold after a power loss: a segment that has arrived may not be on disk yet,
// and must not be recorded as sound.
func TestPowerLossAfterVerification(t *testing.T) {
	random := testseed.Rand(t)
	source, path, content := sealedFixture(t)
	firstPath, first := source.segment(1)
	for range 50 {
		mem := vfs.NewMem()
		f := newFixture(t, mem, string(filepath.Separator))
		f.options.VerifyInterval = time.Millisecond
		replace(t, mem, firstPath, first)
		replace(t, mem, path, content)
		c := f.ready()
		f.waitVerified(2)

		clone := mem.CrashClone(vfs.KeepRandom(random.Uint64()))
		require.NoError(t, c.Close())
		after := newFixture(t, clone, string(filepath.Separator))
		for key, kept := range after.keptResults() {
			if !after.exists(filepath.Join(after.queueDir, sealedName(key.id))) {
				continue // its name was lost
			}
			_, there := after.segment(key.id)
			require.Equal(t, kept.bytes, int64(len(there)))
			require.Equal(t, map[queue.SegmentID][]byte{1: first, 2: content}[key.id], there)
		}
	}
}

// TestVerifiedFormatPage compares the example in the description of the format with the
// written bytes.
func TestVerifiedFormatPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/format/verified.md")
	require.NoError(t, err)
	v := newVerifiedFiles(vfs.NewMem(), "/verified")
	v.seen[segmentKey{3, 0}] = finding{verifiedFile: verifiedFile{bytes: 64 << 20, inode: 1234, modified: 1_700_000_000_000_000_000}, sound: true, durable: true}
	v.seen[segmentKey{4, 0}] = finding{sound: true} // fsync failed
	withoutSpaces := strings.NewReplacer(" ", "")
	dump := withoutSpaces.Replace(hex.Dump(v.encode([16]byte([]byte("0123456789abcdef")))))
	assert.True(t, strings.Contains(withoutSpaces.Replace(string(page)), dump), dump)
}
