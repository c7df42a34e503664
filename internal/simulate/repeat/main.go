// Command repeat runs the tests of internal/simulate so that the same seed gives the same run, nearly
// always. Its arguments are those of the tests.
//
//	go run ./internal/simulate/repeat -test.v -test.run TestSeeds -seed 7 -seeds 1 -log
//
// Go decides at random, and by real time, which goroutine runs next, which case of a select is taken,
// and in which order a map is iterated. repeat builds the tests with a copy of the runtime that is
// changed in a few lines (edits), by -overlay; nothing is installed. In a bubble of testing/synctest
//
//   - each goroutine has random numbers that depend only on how it was started,
//   - no goroutine is preempted, and no processor is taken from it during a system call,
//   - goroutines that yield run after all others, and mutexes measure virtual time.
//
// The order of a map with pointers as keys depends on addresses. They are equal because there is one
// processor, no garbage collection (a run takes up to 2 GB of memory), and a fixed address of the heap.
// One difference remains: the moment at which the runtime starts a thread, for which it allocates
// memory. About one run of twenty differs.
//
// The first build takes some minutes, because all packages depend on the runtime.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// An edit replaces a text of a file of package runtime.
type edit struct{ file, old, new string }

var edits = []edit{
	// Random numbers of the process begin with the same state.
	{"rand.go", "	globalRand.state.Init(*seed)\n", "	clear(seed[:])\n	globalRand.state.Init(*seed)\n"},
	{"rand.go", "	globalRand.state.Reseed()\n", "	globalRand.state.Refill()\n"},

	// Goroutines of a bubble have two generators, and one that makes those of the goroutines that
	// they start.
	{"runtime2.go", "	gcAssistBytes int64\n", "	gcAssistBytes int64\n	bubbleRand, bubbleCheap, bubbleFork uint64\n"},
	{"rand.go", "func allZero(", `
// bubbleTimers makes the generators of functions that timers start.
var bubbleTimers uint64

func (gp *g) seedBubble(seed uint64) { gp.bubbleFork, gp.bubbleRand, gp.bubbleCheap = seed, seed+1, seed+2 }

// drawBubble is SplitMix64.
//
//go:nosplit
func drawBubble(state *uint64) uint64 {
	*state += 0x9e3779b97f4a7c15
	z := *state
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

func allZero(`},
	{"rand.go", "	mp := getg().m\n	c := &mp.chacha8\n", "	if gp := getg(); gp.bubble != nil {\n		return drawBubble(&gp.bubbleRand)\n	}\n	mp := getg().m\n	c := &mp.chacha8\n"},
	{"rand.go", "func cheaprand() uint32 {\n", "func cheaprand() uint32 {\n	if gp := getg(); gp.bubble != nil {\n		return uint32(drawBubble(&gp.bubbleCheap) >> 32)\n	}\n"},
	{"proc.go", "		newg.bubble = callergp.bubble\n", "		newg.bubble = callergp.bubble\n		if newg.bubble != nil {\n			newg.seedBubble(drawBubble(&callergp.bubbleFork))\n		}\n"},
	{"synctest.go", "	gp.bubble = bubble\n", "	bubbleTimers = 0\n	gp.seedBubble(1)\n	gp.bubble = bubble\n"},
	{"time.go", "		gp.bubble = bubble\n", "		gp.bubble = bubble\n		gp.seedBubble(drawBubble(&bubbleTimers))\n"},

	// Real time does not decide what runs next.
	{"proc.go", "const forcePreemptNS = 10 *", "const forcePreemptNS = 1000 * 1000 *"},
	{"proc.go", "!sysretake && int64(pd.syscalltick) != syst {", "!sysretake && (int64(pd.syscalltick) != syst || now < pd.syscallwhen+1000*1000*1000) {"},
	{"proc.go", "	if pp.schedtick%61 == 0 &&", "	if false &&"},
	{"sema.go", "func internal_sync_nanotime() int64 {\n", "func internal_sync_nanotime() int64 {\n	if b := getg().bubble; b != nil {\n		return b.now\n	}\n"},
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "repeat:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	dir, err := os.MkdirTemp("", "repeat-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }() // a leftover is in a temporary directory
	overlay, err := writeOverlay(dir)
	if err != nil {
		return err
	}
	binary := filepath.Join(dir, "simulate.test")
	build := exec.Command("go", "test", "-c", "-overlay", overlay, "-tags", "simulation", "-ldflags=-checklinkname=0", "-o", binary, "./internal/simulate")
	build.Env = append(os.Environ(), "GOEXPERIMENT=norandomizedheapbase64")
	build.Stdout, build.Stderr = os.Stdout, os.Stderr
	if err := build.Run(); err != nil {
		return fmt.Errorf("build the tests, in the root of the project: %w", err)
	}
	tests := exec.Command(binary, args...)
	tests.Dir = filepath.Join("internal", "simulate")
	tests.Env = append(os.Environ(), "GOMAXPROCS=1", "GOGC=off", "GODEBUG=asyncpreemptoff=1,memprofilerate=0")
	tests.Stdout, tests.Stderr = os.Stdout, os.Stderr
	return tests.Run()
}

// writeOverlay writes the changed files of the runtime, and the file for -overlay.
func writeOverlay(dir string) (name string, err error) {
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return "", fmt.Errorf("go env GOROOT: %w", err)
	}
	changed, replaced := map[string]string{}, map[string]string{}
	for _, e := range edits {
		content, ok := changed[e.file]
		path := filepath.Join(strings.TrimSpace(string(root)), "src", "runtime", e.file)
		if !ok {
			read, err := os.ReadFile(path)
			if err != nil {
				return "", err
			}
			content = string(read)
		}
		if strings.Count(content, e.old) != 1 {
			return "", fmt.Errorf("%s has not one place with %q: adapt the edits to this version of Go", path, e.old)
		}
		changed[e.file] = strings.Replace(content, e.old, e.new, 1)
		replaced[path] = filepath.Join(dir, e.file)
	}
	for file, content := range changed {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(content), 0o600); err != nil {
			return "", err
		}
	}
	content, err := json.Marshal(map[string]any{"Replace": replaced})
	name = filepath.Join(dir, "overlay.json")
	return name, errors.Join(err, os.WriteFile(name, content, 0o600))
}
