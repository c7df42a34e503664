package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"docstore/bench/internal/command"
)

func main() {
	command.Main(func(_ context.Context, args []string) error { return run(args, os.Stdout) })
}

func run(args []string, out io.Writer) error {
	if r := os.Getenv(asChild); r != "" {
		return serveAsChild(r)
	}
	flags := flag.NewFlagSet("chaos", flag.ContinueOnError)
	rounds := flags.Int("rounds", 1, "how often each fault is applied, at least 1")
	lasts := flags.Duration("lasts", 3*time.Second, "duration of a fault, and of the observation after it")
	var names []string
	command.Words(flags, &names, "rivals", "boxcar,boxcar-hedged,grpc", "rivals", "boxcar", "boxcar-hedged", "grpc")
	if err := command.Parse(flags, args); err != nil {
		return err
	}
	if *rounds < 1 {
		return errors.New("-rounds: at least 1")
	}
	if _, err := fmt.Fprintf(out, "%d servers, %d callers, each fault for %v and %v of calm after it\n\n", serverCount, callers, *lasts, *lasts); err != nil {
		return err
	}
	for _, name := range names {
		r, err := rivalNamed(name)
		if err != nil {
			return err
		}
		if err := try(r, *rounds, *lasts, out); err != nil {
			return err
		}
	}
	return nil
}

// try applies every fault to a rival and prints the results of its callers.
func try(r rival, rounds int, lasts time.Duration, out io.Writer) error {
	t, err := newTrial(r, lasts)
	if err != nil {
		return err
	}
	seen := make([][]report, len(faults))
	for round := range rounds {
		for i, f := range faults {
			one, err := t.apply(f, (i+round)%serverCount)
			if err != nil {
				return errors.Join(err, t.close())
			}
			seen[i] = append(seen[i], one)
		}
	}
	a, err := t.end()
	if _, printed := io.WriteString(out, table(r, seen, a)); printed != nil {
		err = errors.Join(err, printed)
	}
	if err == nil && !a.faultless() && r.exact {
		err = errors.New("the account is wrong")
	}
	return err
}

// table is what callers saw of each fault, for people.
func table(r rival, seen [][]report, a audit) string {
	var text strings.Builder
	columns := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	rows := fmt.Appendf(nil, "%s\tlongest gap, worst\tfailed\tof\tlongest gap, once, worst\tfailed\tof\twrong\n", r.name)
	for i, f := range faults {
		var twice, once summary
		for _, x := range seen[i] {
			twice.add(x.twice)
			once.add(x.once)
		}
		rows = fmt.Appendf(rows, "%s\t%s\t%d\t%d\t%s\t%d\t%d\t%d\n", f.name,
			twice.text(), twice.fails, twice.calls, once.text(), once.fails, once.calls, twice.wrong+once.wrong)
	}
	_, _ = columns.Write(rows) // a Builder takes all
	_ = columns.Flush()
	return text.String() + fmt.Sprintf("account: %+v\n\n", a)
}

// A summary is the tallies of several rounds.
type summary struct {
	gaps                []time.Duration // the longest of each round
	calls, fails, wrong int
}

func (s *summary) add(t tally) {
	s.gaps = append(s.gaps, t.gap)
	s.calls, s.fails, s.wrong = s.calls+t.calls, s.fails+t.fails, s.wrong+t.wrong
}

// text is the longest gap of a round in the middle, and of the worst.
func (s *summary) text() string {
	slices.Sort(s.gaps)
	return fmt.Sprintf("%v, %v", s.gaps[len(s.gaps)/2].Round(time.Millisecond), s.gaps[len(s.gaps)-1].Round(time.Millisecond))
}
