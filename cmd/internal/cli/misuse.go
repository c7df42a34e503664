package cli

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// tellAll has each command below the root tell everything that is wrong with how it was
// called at once, where cobra stops at the first thing: flags that there are none of,
// values that cannot be read, flags and arguments that are missing or too many, and
// what the command's PreRunE finds, which is settings from elsewhere and values that
// are impossible, by themselves or together.
func tellAll(root *cobra.Command, line []string) {
	root.Args = cobra.ArbitraryArgs // its RunE says which command it does not know
	for _, command := range root.Commands() {
		arguments, further := command.Args, command.PreRunE
		command.Args = cobra.ArbitraryArgs
		command.PreRunE = func(c *cobra.Command, given []string) error {
			return misuse(c, given, arguments, further)
		}
	}
	root.SetFlagErrorFunc(func(c *cobra.Command, first error) error {
		_, rest, err := root.Find(line)
		if err != nil {
			return first
		}
		if c == root && len(rest) > 0 && !strings.HasPrefix(rest[0], "-") { // flags of a command that there is none of
			return NeedsCommand(c, rest)
		}
		given, problems := readFlags(c.Flags(), rest)
		if c.PreRunE != nil {
			problems = append(problems, c.PreRunE(c, given))
		}
		return errors.Join(problems...)
	})
}

// misuse is what is wrong with a call but for flags that cannot be read.
func misuse(c *cobra.Command, given []string, arguments cobra.PositionalArgs, further func(*cobra.Command, []string) error) error {
	var problems []error
	if arguments != nil && given != nil && arguments(c, given) != nil {
		problems = append(problems, wrongArguments(c, given))
	}
	if further != nil { // it may set flags that are missing on the command line
		problems = append(problems, further(c, given))
	}
	c.Flags().VisitAll(func(f *pflag.Flag) {
		if _, required := f.Annotations[cobra.BashCompOneRequiredFlag]; required && !f.Changed {
			problems = append(problems, Usagef("--%s is missing: give the %s", f.Name, f.Usage))
		}
	})
	return errors.Join(problems...)
}

func wrongArguments(c *cobra.Command, given []string) error {
	use := strings.TrimSuffix(c.CommandPath(), c.Name()) + c.Use
	if len(given) == 0 {
		return Usagef("an argument is missing; write %s", use)
	}
	quoted := make([]string, len(given))
	for i, argument := range given {
		quoted[i] = strconv.Quote(argument)
	}
	return Usagef("too many or too few arguments, %s; write %s", strings.Join(quoted, " "), use)
}

// readFlags reads a command line of which a flag could not be read, to its end, and
// sets the flags that can be. It returns the arguments between them, nil if that cannot
// be told, since a flag that nobody knows may have a value.
func readFlags(flags *pflag.FlagSet, line []string) (arguments []string, problems []error) {
	type setting struct {
		flag  *pflag.Flag
		value string
	}
	reading := pflag.NewFlagSet("", pflag.ContinueOnError)
	flags.VisitAll(reading.AddFlag)
	var settings []setting
	unknowns := 0
	for {
		settings = settings[:0]
		err := reading.ParseAll(line, func(f *pflag.Flag, value string) error {
			settings = append(settings, setting{f, value})
			return nil
		})
		var missing *pflag.NotExistError
		if !errors.As(err, &missing) {
			problems = append(problems, unfinished(err))
			break
		}
		unknowns++
		problems = append(problems, addUnknown(reading, missing))
	}
	for _, s := range settings {
		if list, ok := s.flag.Value.(pflag.SliceValue); ok && flags.Lookup(s.flag.Name) == s.flag {
			problems = append(problems, list.Replace(nil)) // cobra has set a part of it
		}
	}
	for _, s := range settings {
		if flags.Lookup(s.flag.Name) != s.flag {
			continue // an unknown one
		}
		if err := flags.Set(s.flag.Name, s.value); err != nil {
			problems = append(problems, wrongValue("--"+s.flag.Name, s.flag, s.value, err))
		}
	}
	if unknowns == 0 {
		arguments = append([]string{}, reading.Args()...)
	}
	return arguments, problems
}

// unfinished is what is wrong where a command line cannot be read on.
func unfinished(err error) error {
	var valueless *pflag.ValueRequiredError
	if errors.As(err, &valueless) {
		return fmt.Errorf("--%s has no value behind it", valueless.GetFlag().Name)
	}
	return err
}

// addUnknown makes a flag that nobody knows known, so that what follows can be read, and
// returns what is wrong with it.
func addUnknown(reading *pflag.FlagSet, missing *pflag.NotExistError) error {
	var names []string
	reading.VisitAll(func(f *pflag.Flag) {
		if f.Value != nil {
			names = append(names, "--"+f.Name)
		}
	})
	name, letters := missing.GetSpecifiedName(), missing.GetSpecifiedShortnames()
	f := &pflag.Flag{Name: name, NoOptDefVal: "true"}
	written := "--" + name
	if letters != "" {
		f.Name, f.Shorthand = "-"+name, name
		if len(letters) > 1 {
			f.NoOptDefVal = "" // it takes the other letters for its value
		}
		written, _, _ = strings.Cut("-"+letters, "=")
	}
	reading.AddFlag(f)
	return unknown("flag", written, names)
}

// wanted is what to write for a flag, by its type.
var wanted = map[string]string{
	"bool":        "true or false",
	"int":         "a whole number",
	"float64":     "a number, such as 0.5 or 2000",
	"duration":    "a duration, such as 250ms, 10s or 1h30m",
	"size":        "a size, such as 64MiB, 1.5GB or 4096",
	"stringSlice": "values with commas between them and no quotation marks",
}

// wrongValue says what to write instead of a value that a flag does not take.
func wrongValue(place string, f *pflag.Flag, value string, err error) error {
	want := wanted[f.Value.Type()]
	if f.Name == LogLevelFlag {
		want = "DEBUG, INFO, WARN or ERROR"
	}
	switch {
	case errors.Is(err, strconv.ErrRange):
		return fmt.Errorf("%s %q: it is too large; write a smaller number", place, value)
	case want == "":
		return fmt.Errorf("%s %q: %w", place, value, err)
	}
	return fmt.Errorf("%s %q: write %s", place, value, want)
}
