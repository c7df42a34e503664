package cli

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// reportAllErrors makes each command below the root report all errors of its command line
// together, while cobra stops at the first: unknown flags, invalid values, missing flags,
// missing or excess arguments, and errors of the command's PreRunE, which reads other
// sources and checks the values.
func reportAllErrors(root *cobra.Command, line []string) {
	reportErrorsBelow(root)
	root.SetFlagErrorFunc(func(c *cobra.Command, first error) error {
		_, rest, err := root.Find(line)
		if err != nil {
			return first
		}
		if c == root && len(rest) > 0 && !strings.HasPrefix(rest[0], "-") { // flags of an unknown command
			return NeedsCommand(c, rest)
		}
		given, problems := readFlags(c.Flags(), rest)
		if c.PreRunE != nil {
			problems = append(problems, c.PreRunE(c, given))
		}
		return errors.Join(problems...)
	})
}

// reportErrorsBelow prepares the commands below a command that contains others.
func reportErrorsBelow(parent *cobra.Command) {
	parent.Args = cobra.ArbitraryArgs // its RunE reports the unknown command
	for _, command := range parent.Commands() {
		if command.HasSubCommands() {
			reportErrorsBelow(command)
			continue
		}
		arguments, further := command.Args, command.PreRunE
		command.Args = cobra.ArbitraryArgs
		command.PreRunE = func(c *cobra.Command, given []string) error {
			return misuse(c, given, arguments, further)
		}
	}
}

// misuse returns the errors of a command line except those of parsing flags.
func misuse(c *cobra.Command, given []string, arguments cobra.PositionalArgs, further func(*cobra.Command, []string) error) error {
	var problems []error
	if arguments != nil && given != nil && arguments(c, given) != nil {
		problems = append(problems, wrongArguments(c, given))
	}
	if further != nil { // it may set required flags
		problems = append(problems, further(c, given))
	}
	c.Flags().VisitAll(func(f *pflag.Flag) {
		if _, required := f.Annotations[cobra.BashCompOneRequiredFlag]; required && (!f.Changed || f.Value.String() == "") {
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

// readFlags parses a command line with invalid flags to its end, and sets the valid flags.
// It returns the arguments between them, nil if they are ambiguous because an unknown flag
// may have a value.
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
			continue // an unknown flag
		}
		if err := flags.Set(s.flag.Name, s.value); err != nil {
			problems = append(problems, WrongValue("--"+s.flag.Name, s.flag, s.value, err))
		}
	}
	if unknowns == 0 {
		arguments = append([]string{}, reading.Args()...)
	}
	return arguments, problems
}

// unfinished returns the error of a command line that ends too early.
func unfinished(err error) error {
	var valueless *pflag.ValueRequiredError
	if errors.As(err, &valueless) {
		return fmt.Errorf("--%s needs a value", valueless.GetFlag().Name)
	}
	return err
}

// addUnknown defines an unknown flag, so that parsing can continue, and returns the error
// for it.
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
			f.NoOptDefVal = "" // the other letters are its value
		}
		written, _, _ = strings.Cut("-"+letters, "=")
	}
	reading.AddFlag(f)
	return Unknown("flag", written, names)
}

// wanted describes valid values by type of flag.
var wanted = map[string]string{
	"bool":        "true or false",
	"int":         "a whole number",
	"float64":     "a number, such as 0.5 or 2000",
	"duration":    "a duration, such as 250ms, 10s or 1h30m",
	"size":        "a size, such as 64MiB, 1.5GB or 4096",
	"stringSlice": "comma-separated values without quotation marks",
}

// WrongValue returns the error for an invalid value, with a correction.
func WrongValue(place string, f *pflag.Flag, value string, err error) error {
	want := wanted[f.Value.Type()]
	if f.Name == LogLevelFlag {
		want = "DEBUG, INFO, WARN or ERROR"
	}
	switch {
	case errors.Is(err, strconv.ErrRange):
		return fmt.Errorf("%s %q: too large; write a smaller number", place, value)
	case want == "":
		return fmt.Errorf("%s %q: %w", place, value, err)
	}
	return fmt.Errorf("%s %q: write %s", place, value, want)
}

// A name is suggested if it differs by one mistake, plus one for each six letters: for
// "serv" serve and for "memroy" memory, but not slots for "list".
const lettersPerMistake = 6

// Unknown returns the error for an unknown name. It suggests the closest known name, if one
// is close enough.
func Unknown(what, name string, known []string) error {
	closest, least := "", len(strings.TrimLeft(name, "-"))/lettersPerMistake+2
	for _, candidate := range known {
		if d := distance(name, candidate); d < least {
			closest, least = candidate, d
		}
	}
	if closest != "" {
		return fmt.Errorf("unknown %s %s; did you mean %s?", what, name, closest)
	}
	return fmt.Errorf("unknown %s %s", what, name)
}

// distance returns the number of bytes to insert, remove, replace or swap with a neighbour
// to change a to b (optimal string alignment).
func distance(a, b string) int {
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			replace := rows[i-1][j-1]
			if a[i-1] != b[j-1] {
				replace++
			}
			rows[i][j] = min(replace, rows[i-1][j]+1, rows[i][j-1]+1)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				rows[i][j] = min(rows[i][j], rows[i-2][j-2]+1)
			}
		}
	}
	return rows[len(a)][len(b)]
}
