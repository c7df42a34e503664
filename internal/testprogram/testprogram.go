// Package testprogram finds the programs that tests start: etcd, memcached, PostgreSQL and
// others. With -short, as make test runs the tests, a test that needs one is skipped. Without
// it, as make test-all runs them, a missing program fails the test.
package testprogram

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// rootOnly is a directory that only root has in PATH.
const rootOnly = "/usr/sbin"

// toolsDir is the directory at the root of the repository in which make setup builds programs.
const toolsDir = ".tools"

// Path returns the path of a program in PATH or in .tools. With -short it skips the test; if
// the program is missing, it fails the test.
func Path(t testing.TB, name string) string {
	t.Helper()
	Skip(t, name)
	path, err := exec.LookPath(name)
	if err == nil {
		return path
	}
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	places := []string{rootOnly}
	for parent := filepath.Dir(dir); parent != dir; dir, parent = parent, filepath.Dir(parent) {
		places = append(places, filepath.Join(dir, toolsDir))
	}
	for _, place := range places {
		if path, err := exec.LookPath(filepath.Join(place, name)); err == nil {
			return path
		}
	}
	t.Fatalf("%s is not installed: run make setup", name)
	return ""
}

// Skip skips the test with -short. The reason has the name of the program.
func Skip(t testing.TB, name string) {
	t.Helper()
	if testing.Short() {
		t.Skipf("needs %s: make test-all runs it", name)
	}
}
