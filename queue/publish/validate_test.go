package publish

import (
	"fmt"
	"testing"
	"time"

	"docstore/internal/vfs"
	"docstore/queue/bucket"

	"github.com/stretchr/testify/require"
)

// validate validates a manifest in a new directory.
func validate(t *testing.T, b bucket.Bucket, m, accepted *Manifest, bounds Bounds) error {
	t.Helper()
	return Validate(t.Context(), b, m, accepted, "work", bounds, &Options{FS: vfs.NewMem()})
}

func TestValidateChecksBounds(t *testing.T) {
	b, s := newBucket(t), newSource()
	for i := range 10 {
		s.write(t, true, [2]string{fmt.Sprint("id-", i), "document"})
	}
	first := publish(t, b, s).Manifest
	require.NoError(t, validate(t, b, first, nil, Bounds{RequiredIDs: []string{"id-0", "id-9"}, MinDocuments: 10, MaxDeletes: 0.1}))
	require.ErrorContains(t, validate(t, b, first, nil, Bounds{RequiredIDs: []string{"id-10"}}), `no document with id "id-10"`)
	require.ErrorContains(t, validate(t, b, first, nil, Bounds{MinDocuments: 11}), "want at least 11")

	s.write(t, true, [2]string{"id-0", ""}, [2]string{"id-1", ""})
	second := publish(t, b, s).Manifest
	require.NoError(t, validate(t, b, second, first, Bounds{MaxDeletes: 0.2}))
	require.ErrorContains(t, validate(t, b, second, first, Bounds{MaxDeletes: 0.1}), "deletes 2 documents since manifest 1")
	require.ErrorContains(t, validate(t, b, second, first, Bounds{RequiredIDs: []string{"id-1"}}), `no document with id "id-1"`)
}

// TestValidateDetectsEachDamagedByte changes the byte of an object in the bucket before
// its digest is computed, so that only the checksums of the queue can detect it.
func TestValidateDetectsEachDamagedByte(t *testing.T) {
	b, s := newBucket(t), newSource()
	s.write(t, true, [2]string{"a", "document"})
	m := publish(t, b, s).Manifest
	content, err := bucket.ReadAll(t.Context(), b, m.Files[0].object(), 1<<20)
	require.NoError(t, err)
	for at := range content {
		damaged := append([]byte{}, content...)
		damaged[at] ^= 1
		other := *m
		other.Files = []File{m.Files[0]}
		other.Files[0].Digest = digestOf(damaged)
		require.NoError(t, b.Delete(t.Context(), other.Files[0].object()))
		require.NoError(t, b.Put(t.Context(), other.Files[0].object(), readerOf(damaged), int64(len(damaged))))
		require.Error(t, validate(t, b, &other, nil, Bounds{}), "byte %d", at)
	}
}

func TestValidateChecksTheChain(t *testing.T) {
	b, s := newBucket(t), newSource()
	for i := range 3 {
		s.write(t, true, [2]string{fmt.Sprint(i), "document"})
	}
	m := publish(t, b, s).Manifest
	for name, change := range map[string]func(m *Manifest){
		"a missing file":        func(m *Manifest) { m.Files = append(m.Files[:1], m.Files[2]) },
		"the first file":        func(m *Manifest) { m.Files = m.Files[1:] },
		"the last file":         func(m *Manifest) { m.Files = m.Files[:2] },
		"a file of another one": func(m *Manifest) { m.Files[1].Follows[0] ^= 1 },
	} {
		changed := *m
		changed.Files = append([]File{}, m.Files...)
		change(&changed)
		require.ErrorIs(t, validate(t, b, &changed, nil, Bounds{}), ErrCorrupt, name)
	}
}

// TestReplicaFollowsManifests fetches each manifest into one directory, after compactions
// as well.
func TestReplicaFollowsManifests(t *testing.T) {
	b, s, mem := newBucket(t), newSource(), vfs.NewMem()
	replica := NewReplica(b, "replica", &Options{FS: mem})
	for i := range 8 {
		s.write(t, true, [2]string{fmt.Sprint(i % 3), fmt.Sprint("document ", i)})
		if i%3 == 2 {
			compact(t, s, 0.1, true)
			s.write(t, true)
		}
		publish(t, b, s)
		m, _, err := FindManifest(t.Context(), b, 0, time.Now)
		require.NoError(t, err)
		require.NoError(t, replica.Fetch(t.Context(), m))
		require.Equal(t, s.documents, read(t, mem, "replica"))
		names, err := mem.List("replica")
		require.NoError(t, err)
		require.Len(t, names, len(m.Files)+1, "the files and the head: %v", names)
	}
}
