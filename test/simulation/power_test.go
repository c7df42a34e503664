package simulation

import (
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/internal/crashtest"
)

var (
	only     = flag.String("defects", "", "TestPower tries the defects whose ids match; empty: a sample, in make soak all")
	limit    = flag.Duration("limit", 10*time.Minute, "processor time in which the simulator must find a defect")
	parallel = flag.Int("at-once", 1, "defects that are tried at the same time")
)

// sample is the defect that each run of the tests tries: it is found within seconds.
const sample = `^U0a-unsent$`

// TestPower brings each defect back, and runs the simulator until it finds it. It prints the table of
// docs/durability.md.
func TestPower(t *testing.T) {
	root, err := filepath.Abs(filepath.Join("..", ".."))
	require.NoError(t, err)
	tried := regexp.MustCompile(cmp.Or(*only, sample))
	if *only == "" && crashtest.Soak() {
		tried = regexp.MustCompile("")
	}
	work := make(chan defect)
	var workers sync.WaitGroup
	for range *parallel {
		workers.Go(func() {
			for d := range work {
				r := d.search(t, root)
				if t.Logf("%s", r); r.problem != "" {
					t.Errorf("%s: %s", d.id, r.problem)
				}
			}
		})
	}
	for _, d := range allDefects() {
		if tried.MatchString(d.id) && d.simulated == "" {
			work <- d
		}
	}
	close(work)
	workers.Wait()
}

// search is the result of a search for a defect.
type search struct {
	defect
	seeds     string
	processor string // time until it was found
	rule      string // that was violated first
	problem   string // why it was not found
}

// String returns a row of the table.
func (s *search) String() string {
	return fmt.Sprintf("| %s | %s | %s | %s | %s |", s.id, s.what, cmp.Or(s.rule, "**no**"), s.seeds, s.processor)
}

var (
	foundLine = regexp.MustCompile(`found with seed (\d+) of this run, after ([\d.hms]+)`)
	ruleLine  = regexp.MustCompile(`VIOLATION ([a-z ]+): (.*)`)
	started   = regexp.MustCompile(`(?m)^=== RUN   Test(Seeds|Pools)/`)
)

// search runs the simulator with the defect.
func (d *defect) search(t *testing.T, root string) *search {
	t.Helper()
	s := &search{defect: *d}
	dir := t.TempDir()
	binary := filepath.Join(dir, "simulate.test")
	build := exec.Command("go", "test", "-c", "-overlay", d.overlay(t, root, dir), "-tags", "simulation", "-ldflags=-checklinkname=0", "-o", binary, "./internal/simulate")
	build.Dir = root
	output, err := build.CombinedOutput()
	require.NoError(t, err, "%s: %s", d.id, output)

	run := exec.Command(binary, "-test.v", "-test.run", "^("+d.scenario()+"|TestCases)$", "-seed", "1", "-seeds", "0", "-until", limit.String(), "-test.timeout", (20 * *limit).String())
	run.Dir = filepath.Join(root, "internal", "simulate")
	output, err = run.CombinedOutput()
	if err == nil {
		s.problem = "not found"
	}
	if found := foundLine.FindSubmatch(output); found != nil {
		s.seeds, s.processor = string(found[1]), string(found[2])
	} else {
		s.seeds = fmt.Sprint(len(started.FindAll(output, -1)))
		s.processor = (run.ProcessState.UserTime() + run.ProcessState.SystemTime()).String()
	}
	switch rule := ruleLine.FindSubmatch(output); {
	case rule != nil:
		s.rule = string(rule[1])
		t.Logf("%s: %.500s", d.id, rule[2])
	case err != nil:
		s.rule = "crash: " + crash(string(output))
	}
	return s
}

// scenario returns the test of the simulator that searches the defect.
func (d *defect) scenario() string {
	for _, dir := range []string{"boxcarrpc/", "docservice/sharded/etcdclient/"} {
		if strings.HasPrefix(d.edits[0].file, dir) && !d.fleet {
			return "TestPools"
		}
	}
	return "TestSeeds"
}

// crash returns the line of an output that says why a process has ended.
func crash(output string) string {
	for line := range strings.Lines(output) {
		if strings.HasPrefix(line, "panic: ") || strings.HasPrefix(line, "fatal error: ") {
			return strings.TrimSpace(line[:min(len(line), 80)])
		}
	}
	return "unknown"
}

// overlay writes the changed files, and returns the file for the flag -overlay.
func (d *defect) overlay(t *testing.T, root, dir string) string {
	t.Helper()
	changed := map[string]string{}
	for i, e := range d.edits {
		path := filepath.Join(root, filepath.FromSlash(e.file))
		content, err := os.ReadFile(cmp.Or(changed[path], path))
		require.NoError(t, err)
		changed[path] = filepath.Join(dir, fmt.Sprint(i, ".go"))
		require.NoError(t, os.WriteFile(changed[path], []byte(strings.Replace(string(content), e.old, e.new, 1)), 0o600))
	}
	content, err := json.Marshal(map[string]any{"Replace": changed})
	require.NoError(t, err)
	overlay := filepath.Join(dir, "overlay.json")
	require.NoError(t, os.WriteFile(overlay, content, 0o600))
	return overlay
}
