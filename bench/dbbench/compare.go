package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"docstore/bench/internal/results"
)

// measured holds the results by phase, engine and round.
type measured map[string]map[string][]result

func (m measured) add(r result) {
	if m[r.Phase] == nil {
		m[r.Phase] = map[string][]result{}
	}
	m[r.Phase][r.Engine] = append(m[r.Phase][r.Engine], r)
}

// compare runs each engine of each round in a separate process.
func compare(ctx context.Context, s settings) (err error) {
	var file *results.File
	if s.results != "" {
		if file, err = results.Open(s.results); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, file.Close()) }()
	}
	all, in := []result(nil), measured{}
	for round := range s.rounds {
		for _, name := range s.engines {
			if s.kept(file, name, round+1) {
				continue
			}
			if file != nil { // show the progress
				fmt.Fprintf(os.Stderr, "dbbench: round %d of %d: %s\n", round+1, s.rounds, name)
			}
			fresh, err := child(ctx, s, name)
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			var entries []results.Result
			for _, r := range fresh {
				all, entries = append(all, r), append(entries, results.Now(s.key(r.Engine, r.Phase, round+1), r.figures()))
				in.add(r)
			}
			if file == nil {
				continue
			}
			if err := file.Add(entries...); err != nil {
				return err
			}
		}
	}
	s.report(all, in)
	return nil
}

// report prints the results.
func (s settings) report(all []result, in measured) {
	if s.json {
		_ = json.NewEncoder(os.Stdout).Encode(all) // ignore a closed output
		return
	}
	s.printHead()
	if !s.goBench {
		s.printTable(in)
	}
	for _, r := range all {
		if !s.goBench {
			fmt.Print("# ")
		}
		s.print(r)
	}
}

// printTable prints medians.
func (s settings) printTable(in measured) {
	fmt.Printf("# %d entries of %d + %d bytes, seed %d, rounds: %d; medians in ops/s (least-greatest)\n",
		s.num, s.keyBytes, s.valueBytes, s.seed, s.rounds)
	anonymous := map[string]int64{}
	for _, phase := range s.phases {
		fmt.Printf("%-14s", phase)
		best, ours := 0.0, 0.0
		for i, name := range s.engines {
			var rates []float64
			for _, r := range in[phase][name] {
				rates = append(rates, r.rate())
				anonymous[name] = max(anonymous[name], r.PeakAnonymous)
			}
			if rates == nil {
				continue // not supported, or measured by an earlier run
			}
			rate := results.SpreadOf(rates)
			fmt.Printf("  %s %.0f (%.0f-%.0f)", name, rate.Median, rate.Least, rate.Greatest)
			if i == 0 {
				ours = rate.Median
			} else {
				best = max(best, rate.Median)
			}
		}
		if best > 0 && ours > 0 {
			fmt.Printf("  ratio %.2f", ours/best)
		}
		fmt.Println()
	}
	fmt.Printf("%-14s", "anonymous MB")
	for _, name := range s.engines {
		fmt.Printf("  %s %d", name, anonymous[name]>>20)
	}
	fmt.Println()
}

func (s settings) key(engine, phase string, round int) results.Key {
	return results.Key{Bench: "dbbench", Table: s.table, Settings: s.dependsOn(), Contestant: engine, Phase: phase, Round: round}
}

// dependsOn returns the settings on which figures depend.
func (s settings) dependsOn() string {
	text := fmt.Sprintf("num=%d reads=%d key_size=%d value_size=%d write_buffer_size=%d threads=%d seed=%d benchmark_write_rate_limit=%d",
		s.num, s.reads, s.keyBytes, s.valueBytes, s.memtableBytes, s.threads, s.seed, s.writeRate)
	for _, option := range []struct {
		set  bool
		text string
	}{
		{s.prefixBytes != allButLast, fmt.Sprintf("prefix_size=%d", s.prefixBytes)},
		{s.sync, "sync"},
		{s.histogram, "histogram"},
		{s.existing, "use_existing_db"},
		{s.bloomBits > 0, fmt.Sprintf("bloom_bits=%d", s.bloomBits)},
		{s.mergeRule != "tiered", "merge_rule=" + s.mergeRule},
		{s.memoryLimit > 0, fmt.Sprintf("memory_limit=%d", s.memoryLimit)},
	} {
		if option.set {
			text += " " + option.text
		}
	}
	return text
}

// kept reports whether a file has an engine's round. The phases of a round are measured together.
func (s settings) kept(file *results.File, engine string, round int) bool {
	return file != nil && slices.ContainsFunc(s.phases, func(phase string) bool { return file.Has(s.key(engine, phase, round)) })
}

// child measures an engine in a child process.
func child(ctx context.Context, s settings, name string) (fresh []result, err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	args := []string{
		"-json", "-engine", name, "-benchmarks", strings.Join(s.phases, ","),
		"-num", strconv.Itoa(s.num), "-reads", strconv.Itoa(s.reads),
		"-key_size", strconv.Itoa(s.keyBytes), "-prefix_size", strconv.Itoa(s.prefixBytes), "-value_size", strconv.Itoa(s.valueBytes),
		"-write_buffer_size", strconv.FormatInt(s.memtableBytes, 10),
		"-threads", strconv.Itoa(s.threads), "-seed", strconv.FormatUint(s.seed, 10),
		"-benchmark_write_rate_limit", strconv.Itoa(s.writeRate), "-bloom_bits", strconv.Itoa(s.bloomBits),
		"-merge_rule", s.mergeRule, "-db", s.dir,
		"-memory_limit", strconv.FormatInt(s.memoryLimit, 10), "-cgroup", s.cgroup,
		"-histogram=" + strconv.FormatBool(s.histogram), "-sync=" + strconv.FormatBool(s.sync),
		"-quiet", s.quiet.String(),
		"-use_existing_db=" + strconv.FormatBool(s.existing),
	}
	command := exec.CommandContext(ctx, self, args...)
	command.Cancel = func() error { return command.Process.Signal(syscall.SIGTERM) } // it cleans up
	command.WaitDelay = time.Minute
	command.Stderr = os.Stderr
	out, err := command.Output()
	if err != nil {
		return nil, err
	}
	return fresh, json.Unmarshal(out, &fresh)
}
