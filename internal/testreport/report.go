package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// event is a line of go test -json; see go doc test2json.
type event struct {
	Action     string // run, output, pass, fail, skip, build-output, build-fail, ...
	Package    string
	ImportPath string // of build-output
	Test       string // empty: the package
	Output     string
	Elapsed    float64 // seconds
}

// id identifies a test of a package, or with an empty test the package.
type id struct{ name, test string }

// report prints the results of go test. It ignores errors of the terminal.
type report struct {
	out                     io.Writer
	started                 time.Time
	outputs                 map[id]*strings.Builder // of running tests and packages
	passed, failed, skipped int                     // tests and subtests
	broken                  int                     // packages that failed without a failed test
	packages                []result
	failedTests             map[string]int // by package
	first                   string         // the first failure
}

// result is a finished package.
type result struct {
	name    string
	seconds float64
}

func newReport(out io.Writer) *report {
	return &report{out: out, started: time.Now(), outputs: make(map[id]*strings.Builder), failedTests: make(map[string]int)}
}

// read reads the events to the end and prints the results as they arrive.
func (r *report) read(events io.Reader) error {
	lines := bufio.NewReader(events)
	for {
		line, err := lines.ReadBytes('\n')
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		var e event
		if json.Unmarshal(line, &e) != nil {
			_, _ = fmt.Fprintf(r.out, "%s", line) // go test prints some errors as text
			continue
		}
		r.add(e)
	}
}

func (r *report) add(e event) {
	key := id{e.Package, e.Test}
	switch e.Action {
	case "build-output":
		key = id{strings.Fields(e.ImportPath)[0], ""} // "docstore/lsm [docstore/lsm.test]"
		fallthrough
	case "output":
		output := r.outputs[key]
		if output == nil {
			output = new(strings.Builder)
			r.outputs[key] = output
		}
		output.WriteString(e.Output)
	case "pass", "skip", "fail":
		output := ""
		if b := r.outputs[key]; b != nil {
			output = b.String()
			delete(r.outputs, key)
		}
		if e.Test == "" {
			r.endPackage(e, output)
		} else {
			r.endTest(e, output)
		}
	}
}

func (r *report) endTest(e event, output string) {
	switch e.Action {
	case "pass":
		r.passed++
	case "skip":
		r.skipped++
	case "fail":
		r.failed++
		r.failedTests[e.Package]++
		r.fail(e.Package, output)
	}
}

func (r *report) endPackage(e event, output string) {
	switch {
	case e.Action == "skip": // it has no tests
		return
	case e.Action == "fail" && r.failedTests[e.Package] == 0:
		r.broken++ // it does not build, or its TestMain failed
		r.fail(e.Package, output)
	case e.Action == "fail":
		_, _ = fmt.Fprintf(r.out, "FAIL  %s  %.1fs\n", e.Package, e.Elapsed)
	case e.Action == "pass":
		_, _ = fmt.Fprintf(r.out, "ok    %s  %.1fs\n", e.Package, e.Elapsed)
	}
	r.packages = append(r.packages, result{e.Package, e.Elapsed})
}

func (r *report) fail(name, output string) {
	text := fmt.Sprintf("FAIL  %s\n%s", name, output)
	_, _ = fmt.Fprint(r.out, text)
	if r.first == "" {
		r.first = text
	}
}

// end prints the slowest packages, the totals, and again the first failure.
func (r *report) end(slowest int) {
	if slowest > 0 {
		_, _ = fmt.Fprintf(r.out, "\nslowest packages:\n")
		slices.SortFunc(r.packages, func(a, b result) int { return cmp.Compare(b.seconds, a.seconds) })
		for _, p := range r.packages[:min(slowest, len(r.packages))] {
			_, _ = fmt.Fprintf(r.out, "%6.1fs  %s\n", p.seconds, p.name)
		}
	}
	if r.first != "" {
		_, _ = fmt.Fprintf(r.out, "\nthe first failure:\n%s", r.first)
	}
	_, _ = fmt.Fprintf(r.out, "\n%d packages in %s\n%d passed, %d failed, %d skipped\n",
		len(r.packages), time.Since(r.started).Round(time.Second), r.passed, r.failed+r.broken, r.skipped)
}
