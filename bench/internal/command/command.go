// Package command has what the main functions of the benchmarks share.
package command

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// Main runs a program, which signals end.
func Main(run func(args []string) error) {
	if err := run(os.Args[1:]); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintf(os.Stderr, "%s: %v\n", filepath.Base(os.Args[0]), err)
		os.Exit(1)
	}
}

// MainContext runs a program. SIGINT and SIGTERM cancel its context.
func MainContext(run func(ctx context.Context, args []string) error) {
	Main(func(args []string) error {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		return run(ctx, args)
	})
}

// Parse parses flags of a program without arguments.
func Parse(flags *flag.FlagSet, args []string) error {
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q; see -help", flags.Arg(0))
	}
	return nil
}

// Numbers defines a flag that is a comma-separated list of numbers from least to most.
func Numbers(flags *flag.FlagSet, p *[]int, name, value string, least, most int, usage string) {
	List(flags, p, name, value, usage, func(word string) (int, error) {
		n, err := strconv.Atoi(word)
		if err != nil || n < least || n > most {
			return 0, fmt.Errorf("must be numbers from %d to %d", least, most)
		}
		return n, nil
	})
}

// Words defines a flag that is a comma-separated list of some of the allowed words.
func Words(flags *flag.FlagSet, p *[]string, name, value, usage string, allowed ...string) {
	List(flags, p, name, value, usage+": "+strings.Join(allowed, ", "), func(word string) (string, error) {
		if !slices.Contains(allowed, word) {
			return "", fmt.Errorf("must be some of %s", strings.Join(allowed, ", "))
		}
		return word, nil
	})
}

// List defines a flag that is a comma-separated list. It panics if value is not valid.
func List[T any](flags *flag.FlagSet, p *[]T, name, value, usage string, parse func(word string) (T, error)) {
	set := func(text string) error {
		var all []T
		for word := range strings.SplitSeq(text, ",") {
			x, err := parse(word)
			if err != nil {
				return err
			}
			all = append(all, x)
		}
		*p = all
		return nil
	}
	if err := set(value); err != nil {
		panic(err)
	}
	flags.Func(name, "comma-separated "+usage+" (default "+value+")", set)
}
