package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"docstore/bench/internal/process"
	"docstore/bench/internal/results"
)

// measure runs the chosen steps. After a failure it runs the others.
func (s *settings) measure(ctx context.Context) error {
	file, err := filepath.Abs(s.file)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	if !s.dryRun {
		if err := s.build(); err != nil {
			return err
		}
	}
	var failed []error
	for i, one := range s.chosen {
		args := slices.Concat(one.args, one.sized[s.size])
		at := slices.Index(args, corpus)
		if at >= 0 {
			args = slices.Delete(args, at, at+1)
		}
		if args = override(args, s.more); at >= 0 {
			if _, err := os.Stat(s.corpus); errors.Is(err, fs.ErrNotExist) {
				fmt.Printf("report: %s is skipped: %s does not exist; on Debian, make it: apt-cache dumpavail | go run ./corpus | gzip > %s\n", one.table, s.corpus, s.corpus)
				continue
			}
			args = append(args, s.corpus)
		}
		started := time.Now()
		fmt.Printf("report: %d of %d: %s: %s %s\n", i+1, len(s.chosen), one.table, one.program, strings.Join(args, " "))
		if s.dryRun {
			continue
		}
		if one.program == "gotest" {
			err = s.goTest(ctx, one, args, file)
		} else {
			err = s.runProgram(ctx, one, args, file)
		}
		if err != nil {
			err = fmt.Errorf("%s: %w", one.table, err)
			fmt.Println("report:", err)
			failed = append(failed, err)
		}
		if ctx.Err() != nil {
			return fmt.Errorf("interrupted; the results so far are in %s", file)
		}
		fmt.Printf("report: %s took %.0f s\n", one.table, time.Since(started).Seconds())
	}
	return errors.Join(failed...)
}

// override appends flags to those of a step and removes earlier ones of the same name.
func override(args, more []string) []string {
	var kept []string
	drop := false
	for _, word := range args {
		if strings.HasPrefix(word, "-") {
			drop = slices.Contains(more, word)
		}
		if !drop {
			kept = append(kept, word)
		}
	}
	return append(kept, more...)
}

// build builds the programs, dbbench with the cgo engines if their libraries are installed.
func (s *settings) build() error {
	programs := map[string]bool{}
	for _, one := range s.chosen {
		if one.program == "gotest" || programs[one.program] {
			continue
		}
		programs[one.program] = true
		if one.program == "dbbench" && goBuild(s.tempDir, one.program, "-tags", "cgo_rivals") == nil {
			continue
		}
		if one.program == "dbbench" {
			fmt.Println("report: dbbench is built without LevelDB, RocksDB, Kyoto Cabinet and LMDB; bench/setup installs their libraries")
		}
		if err := goBuild(s.tempDir, one.program); err != nil {
			return err
		}
	}
	return nil
}

func goBuild(dir, program string, flags ...string) error {
	args := append(append([]string{"build"}, flags...), "-o", filepath.Join(dir, program), "./"+program)
	if out, err := exec.Command("go", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return nil
}

// runProgram runs a step that writes its results itself.
func (s *settings) runProgram(ctx context.Context, one step, args []string, file string) error {
	args = append([]string{"-results", file, "-table", one.table, "-size", s.size}, args...)
	cmd := process.Command(ctx, filepath.Join(s.tempDir, one.program), args...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	return cmd.Run()
}

// goTest runs Go benchmarks: args has the package, the pattern and flags.
func (s *settings) goTest(ctx context.Context, one step, args []string, file string) (err error) {
	keeper, err := results.NewKeeper("gotest", one.table, strings.Join(args, " "), file)
	if err != nil {
		return err
	}
	keeper.Size = s.size
	keeper.Command = fmt.Sprintf("go test %s -run '^$' -bench '%s' %s", args[0], args[1], strings.Join(args[2:], " "))
	defer func() { err = errors.Join(err, keeper.Close()) }()
	if keeper.Has("all", "done", 1) {
		return nil
	}
	cmd := process.Command(ctx, "go", append([]string{"test", args[0], "-run", "^$", "-timeout", "30m", "-bench", args[1]}, args[2:]...)...)
	cmd.Dir = ".." // the product's module
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	fmt.Print(string(out))
	if err != nil {
		return err
	}
	rounds := map[string]int{}
	for _, b := range parseBenchmarks(out) {
		rounds[b.name]++
		if err := keeper.Add(keeper.Result(b.name, "benchmark", rounds[b.name], b.figures)); err != nil {
			return err
		}
	}
	if len(rounds) == 0 {
		return errors.New("no benchmark has run")
	}
	return keeper.Add(keeper.Result("all", "done", 1, map[string]float64{"benchmarks": float64(len(rounds))}))
}

// A goBenchmark is a line of go test -bench.
type goBenchmark struct {
	name    string // without Benchmark and the number of processors
	figures map[string]float64
}

// parseBenchmarks finds the lines of benchmarks.
func parseBenchmarks(out []byte) (all []goBenchmark) {
	for line := range bytes.Lines(out) {
		fields := strings.Fields(string(line))
		if len(fields) < 4 || !strings.HasPrefix(fields[0], "Benchmark") {
			continue
		}
		b := goBenchmark{strings.TrimPrefix(fields[0], "Benchmark"), map[string]float64{}}
		if at := strings.LastIndexByte(b.name, '-'); at >= 0 {
			if _, err := strconv.Atoi(b.name[at+1:]); err == nil {
				b.name = b.name[:at]
			}
		}
		for i := 2; i+1 < len(fields); i += 2 {
			if figure, err := strconv.ParseFloat(fields[i], 64); err == nil {
				b.figures[fields[i+1]] = figure
			}
		}
		if len(b.figures) > 0 {
			all = append(all, b)
		}
	}
	return all
}
