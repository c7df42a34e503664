package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(1)
	}
}

func run(args []string, out io.Writer) error {
	if r := os.Getenv(asChild); r != "" {
		return serveAsChild(r)
	}
	flags := flag.NewFlagSet("chaos", flag.ContinueOnError)
	rounds := flags.Int("rounds", 1, "how often each fault befalls")
	lasts := flags.Duration("lasts", 3*time.Second, "how long a fault lasts, and how long its end is watched")
	names := flags.String("rivals", "boxcar,boxcar-hedged,grpc", "what is tried, with commas between")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if _, err := fmt.Fprintf(out, "%d servers, %d callers, each fault for %v and %v of calm after it\n\n", serverCount, callers, *lasts, *lasts); err != nil {
		return err
	}
	for _, name := range strings.Split(*names, ",") {
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

// try has every fault befall a rival and prints what its callers saw.
func try(r rival, rounds int, lasts time.Duration, out io.Writer) error {
	t, err := newTown(r, lasts)
	if err != nil {
		return err
	}
	worst := make([]report, len(faults))
	for round := range rounds {
		for i, f := range faults {
			seen, err := t.suffer(f, (i+round)%serverCount)
			if err != nil {
				return errors.Join(err, t.close())
			}
			worst[i].fault = f.name
			worst[i].twice.add(seen.twice)
			worst[i].once.add(seen.once)
		}
	}
	a, err := t.end()
	if _, printed := io.WriteString(out, table(r, worst, a)); printed != nil {
		err = errors.Join(err, printed)
	}
	if err == nil && !a.faultless() && r.exact {
		err = errors.New("the account is wrong")
	}
	return err
}

func (t *tally) add(other tally) {
	t.gap = max(t.gap, other.gap)
	t.calls, t.fails, t.wrong = t.calls+other.calls, t.fails+other.fails, t.wrong+other.wrong
}

// table is what callers saw, for people.
func table(r rival, reports []report, a audit) string {
	var text strings.Builder
	columns := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	rows := fmt.Appendf(nil, "%s\tlongest gap\tfailed\tof\tlongest gap, once\tfailed\tof\twrong\n", r.name)
	for _, x := range reports {
		rows = fmt.Appendf(rows, "%s\t%v\t%d\t%d\t%v\t%d\t%d\t%d\n", x.fault,
			x.twice.gap.Round(time.Millisecond), x.twice.fails, x.twice.calls,
			x.once.gap.Round(time.Millisecond), x.once.fails, x.once.calls, x.twice.wrong+x.once.wrong)
	}
	_, _ = columns.Write(rows) // a Builder takes all
	_ = columns.Flush()
	return text.String() + fmt.Sprintf("account: %+v\n\n", a)
}
