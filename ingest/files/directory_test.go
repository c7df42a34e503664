package files

import (
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/ingest/records"
	"docstore/internal/testseed"
)

// newTestDirectory returns the files below root; a walk returns so many. opened receives
// each directory that is opened.
func newTestDirectory(t *testing.T, root string, listed int, opened func(dir string)) *directory {
	t.Helper()
	store, err := NewDirectory(root + "/**")
	require.NoError(t, err)
	d := store.(*directory)
	d.listed = listed
	d.open = func(dir string) (entryReader, error) {
		opened(dir)
		return openEntries(dir)
	}
	return d
}

// randomTree makes files, and returns their paths in order.
func randomTree(t *testing.T, random *rand.Rand, root string) (paths []string) {
	parts := []string{"a", "a-b", "a.b", "ab", "b", "b!", ".c"}
	for range random.IntN(60) {
		dir := root
		for random.IntN(2) == 0 {
			dir = filepath.Join(dir, parts[random.IntN(len(parts))])
		}
		path := filepath.Join(dir, parts[random.IntN(len(parts))]+fmt.Sprint(random.IntN(3)))
		require.NoError(t, os.MkdirAll(dir, 0o700))
		write(t, path, "")
		if !strings.Contains(path[len(root):], "/.") {
			paths = append(paths, path)
		}
	}
	slices.Sort(paths)
	return slices.Compact(paths)
}

// TestDirectoryList compares lists with the sorted paths, for any number of files that a walk
// returns.
func TestDirectoryList(t *testing.T) {
	random := testseed.Rand(t)
	for range 5 {
		root := t.TempDir()
		want := randomTree(t, random, root)
		d := newTestDirectory(t, root, 1+random.IntN(20), func(string) {})
		after := filepath.Join(root, []string{"", "a", "a-", "a-b/a", "a/b0", "b0"}[random.IntN(6)])
		if len(want) > 0 && random.IntN(2) == 0 {
			after = want[random.IntN(len(want))]
		}
		want = slices.DeleteFunc(want, func(path string) bool { return path <= after })
		var got []string
		for object, err := range d.List(t.Context(), after) {
			require.NoError(t, err)
			got = append(got, object.Name)
		}
		require.Equal(t, strings.Join(want, " "), strings.Join(got, " "), "after %s", after)
	}
}

// TestDirectoryLinks: a symbolic link to a file is listed with the file's size; one to nothing or to
// a directory is not listed.
func TestDirectoryLinks(t *testing.T) {
	root := filepath.Join(t.TempDir(), "in")
	require.NoError(t, os.Mkdir(root, 0o700))
	write(t, root+"-file", "{}\n")
	for name, target := range map[string]string{"a": root + "-file", "b": root + "-missing", "c": "../in"} {
		require.NoError(t, os.Symlink(target, filepath.Join(root, name)))
	}
	var got []Object
	for object, err := range newTestDirectory(t, root, 10, func(string) {}).List(t.Context(), "") {
		require.NoError(t, err)
		got = append(got, object)
	}
	require.Len(t, got, 1)
	require.Equal(t, filepath.Join(root, "a"), got[0].Name)
	require.EqualValues(t, len("{}\n"), got[0].Size)
}

// TestDirectoryIsReadOnce: the walks over a directory depend on the number of files that one
// returns, and not on how many are read ahead.
func TestDirectoryIsReadOnce(t *testing.T) {
	const files = 2_500
	root, walks := t.TempDir(), 0
	for i := range files {
		write(t, filepath.Join(root, fmt.Sprintf("%04d.ndjson", i)), fmt.Sprintf("{\"id\":%d}\n", i))
	}
	for listed, want := range map[int]int{
		listedFiles: 2, // the second one finds nothing new
		1000:        4,
	} {
		walks = 0
		d := newTestDirectory(t, root, listed, func(string) { walks++ })
		all := readFrom(t, NewObjectsOpener(d, Options{Format: records.FormatNDJSON}, nil), "")
		require.Len(t, all, files)
		require.Equal(t, want, walks, "%d files in a walk", listed)
	}
}

// TestDirectoriesBeforeTheLastFileAreNotRead: new files are found without reading the directories
// whose files were read.
func TestDirectoriesBeforeTheLastFileAreNotRead(t *testing.T) {
	root := t.TempDir()
	for day := range 5 {
		dir := filepath.Join(root, fmt.Sprint("2026-11-2", day))
		require.NoError(t, os.Mkdir(dir, 0o700))
		write(t, filepath.Join(dir, "1"), "")
	}
	var opened []string
	d := newTestDirectory(t, root, 1, func(dir string) { opened = append(opened, strings.TrimPrefix(dir, root)) })
	for _, err := range d.List(t.Context(), filepath.Join(root, "2026-11-24/1")) {
		require.NoError(t, err)
	}
	require.Equal(t, []string{"/", "/2026-11-24/"}, opened)
}

// TestDirectoryErrors: files that vanish are left out, other errors end the list.
func TestDirectoryErrors(t *testing.T) {
	root := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(root, "b"), 0o700))
	for _, name := range []string{"a", "b/1", "c"} {
		write(t, filepath.Join(root, name), "")
	}
	for failure, want := range map[error]string{fs.ErrNotExist: "/a /c", fs.ErrPermission: ""} {
		d := newTestDirectory(t, root, 10, func(string) {})
		d.open = func(dir string) (entryReader, error) {
			if strings.HasSuffix(dir, "/b/") {
				return nil, failure
			}
			return openEntries(dir)
		}
		var names []string
		var failed error
		for object, err := range d.List(t.Context(), "") {
			if failed = err; err == nil {
				names = append(names, strings.TrimPrefix(object.Name, root))
			}
		}
		require.Equal(t, want, strings.Join(names, " "))
		require.Equal(t, want == "", failed != nil)
	}
}
