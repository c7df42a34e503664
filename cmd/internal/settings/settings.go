// Package settings lets the flags of a command come from the environment and a file.
package settings

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"docstore/cmd/internal/cli"
)

// Flag is the name of the flag for the file that With reads.
const Flag = "config"

// Sources of a setting. A file is named with the line.
const (
	sourceDefault = "default"
	sourceFlag    = "flag"
)

// With lets the flags of a command also come from other sources. In order of
// precedence: the command line; environment variables, --log-level as PREFIX_LOG_LEVEL; the
// YAML file of --config, with flags as keys and lists for repeatable flags; the default.
// Unknown variables and keys, and invalid values, are errors; all are reported together,
// each with its place and a correction.
//
// prefix is that of the variables, for example DOCSERVICED. A variable for a flag of
// another command of the same program is ignored. The command's own PreRunE runs
// afterwards, to check the values, and its error is reported with the others. The settings
// are complete when the command runs: see Of.
func With(command *cobra.Command, prefix string) {
	command.Flags().String(Flag, "", "YAML file of settings, with these flags as keys")
	check := command.PreRunE
	command.PreRunE = func(c *cobra.Command, given []string) error {
		err := configure(c, prefix, os.Environ())
		if check != nil {
			err = errors.Join(err, check(c, given))
		}
		return err
	}
}

// Of returns the effective values of a command's flags, sorted by name, with their
// sources. A flag that With did not set has the command line as source.
func Of(command *cobra.Command) []cli.Setting {
	var settings []cli.Setting
	command.Flags().VisitAll(func(f *pflag.Flag) {
		if f.Name == "help" || f.Name == Flag || len(f.Annotations[otherAnnotation]) > 0 {
			return
		}
		source := sourceDefault
		if from := f.Annotations[sourceAnnotation]; len(from) > 0 {
			source = from[0]
		} else if f.Changed {
			source = sourceFlag
		}
		settings = append(settings, cli.Setting{Name: f.Name, Value: f.Value.String(), Source: source})
	})
	return settings
}

// Annotations of a flag: its source, and that it is not a setting.
const (
	sourceAnnotation = "docstore_source"
	otherAnnotation  = "docstore_no_setting"
)

// Exclude makes Of and Append leave a flag out.
func Exclude(command *cobra.Command, flag string) {
	if err := command.Flags().SetAnnotation(flag, otherAnnotation, []string{"true"}); err != nil {
		panic(err) // the command has no such flag
	}
}

// OnCommandLine reports whether a flag was set on the command line, and not by the environment
// or the file of a command With.
func OnCommandLine(f *pflag.Flag) bool { return f.Changed && len(f.Annotations[sourceAnnotation]) == 0 }

// configure sets the flags that are not on the command line.
func configure(command *cobra.Command, prefix string, environ []string) error {
	flags := command.Flags()
	problems := fromEnvironment(command, prefix, environ)
	if path, _ := flags.GetString(Flag); path != "" { // the flag exists and is a string
		problems = append(problems, fromFile(flags, path)...)
	}
	return errors.Join(problems...)
}

// Again recomputes the settings of a running command, from the same command line and the
// current environment and file, into the flags of fresh, another instance of the command.
// It returns the errors that With reports.
func Again(running, fresh *cobra.Command) error {
	level := slog.LevelInfo
	if fresh.Flags().Lookup(cli.LogLevelFlag) == nil { // it is a flag of the root
		fresh.Flags().TextVar(&level, cli.LogLevelFlag, level, "")
	}
	var err error
	running.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Changed || len(f.Annotations[sourceAnnotation]) > 0 {
			return // not from the command line
		}
		values := []string{f.Value.String()}
		if list, ok := f.Value.(pflag.SliceValue); ok {
			values = list.GetSlice()
		}
		for _, value := range values {
			err = errors.Join(err, fresh.Flags().Set(f.Name, value))
		}
	})
	if err != nil {
		return err
	}
	return fresh.PreRunE(fresh, nil)
}

// variableOf returns the environment variable of a flag.
func variableOf(prefix, name string) string {
	return prefix + "_" + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
}

func fromEnvironment(command *cobra.Command, prefix string, environ []string) (problems []error) {
	flags, byVariable, others := command.Flags(), map[string]*pflag.Flag{}, map[string]bool{}
	flags.VisitAll(func(f *pflag.Flag) { byVariable[variableOf(prefix, f.Name)] = f })
	for _, other := range command.Root().Commands() {
		other.Flags().VisitAll(func(f *pflag.Flag) { others[variableOf(prefix, f.Name)] = true })
	}
	for _, variable := range slices.Sorted(slices.Values(environ)) {
		name, value, _ := strings.Cut(variable, "=")
		if !strings.HasPrefix(name, prefix+"_") {
			continue
		}
		f := byVariable[name]
		if f == nil && others[name] {
			continue
		}
		if f == nil {
			problems = append(problems, cli.Unknown("variable", name, mapKeys(byVariable)))
			continue
		}
		if f.Changed {
			continue // the command line takes precedence
		}
		if err := set(flags, f, []string{value}, name, name); err != nil {
			problems = append(problems, err)
		}
	}
	return problems
}

func fromFile(flags *pflag.FlagSet, path string) (problems []error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return []error{fmt.Errorf("--%s: %w", Flag, err)}
	}
	var document yaml.Node
	if err := yaml.Unmarshal(content, &document); err != nil {
		return []error{fmt.Errorf("%s: %w", path, err)}
	}
	if len(document.Content) == 0 {
		return nil // empty, or only comments
	}
	root := document.Content[0]
	if root.Kind != yaml.MappingNode {
		return []error{fmt.Errorf("%s:%d: want lines of the form \"flag: value\"", path, root.Line)}
	}
	known := map[string]*pflag.Flag{}
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Name != "help" && f.Name != Flag {
			known[f.Name] = f
		}
	})
	seen := map[string]bool{}
	for i := 0; i < len(root.Content); i += 2 {
		key, value := root.Content[i], root.Content[i+1]
		place := fmt.Sprintf("%s:%d", path, key.Line)
		f := known[key.Value]
		switch {
		case f == nil:
			problems = append(problems, fmt.Errorf("%s: %w", place, cli.Unknown("key", key.Value, mapKeys(known))))
			continue
		case seen[key.Value]:
			problems = append(problems, fmt.Errorf("%s: duplicate key %s; write a list, or remove one", place, key.Value))
			continue
		}
		seen[key.Value] = true
		values, err := scalars(value)
		if err != nil {
			problems = append(problems, fmt.Errorf("%s: %s: %w", place, key.Value, err))
			continue
		}
		if f.Changed {
			continue // the command line or the environment takes precedence
		}
		if err := set(flags, f, values, place, place+": "+f.Name); err != nil {
			problems = append(problems, err)
		}
	}
	return problems
}

// scalars returns the value of a key, or the values of its list, as on a command line.
func scalars(node *yaml.Node) ([]string, error) {
	switch node.Kind {
	case yaml.ScalarNode:
		if node.Tag == "!!null" {
			return nil, errors.New("has no value; write one, or remove the line")
		}
		return []string{node.Value}, nil
	case yaml.SequenceNode:
		var values []string
		for _, item := range node.Content {
			if item.Kind != yaml.ScalarNode || item.Tag == "!!null" {
				return nil, fmt.Errorf("line %d: want a plain value in the list", item.Line)
			}
			values = append(values, item.Value)
		}
		return values, nil
	case yaml.AliasNode:
		return scalars(node.Alias)
	}
	return nil, errors.New("want a value or a list of values")
}

// set sets a flag to values from source. written is the place for error messages.
func set(flags *pflag.FlagSet, f *pflag.Flag, values []string, source, written string) error {
	list, repeatable := f.Value.(pflag.SliceValue)
	if len(values) != 1 && !repeatable {
		return fmt.Errorf("%s: write one value, not a list", written)
	}
	for _, value := range values {
		if err := flags.Set(f.Name, value); err != nil {
			return cli.WrongValue(written, f, value, err)
		}
	}
	if len(values) == 0 { // an empty list
		if err := list.Replace(nil); err != nil {
			return fmt.Errorf("%s: %w", written, err)
		}
	}
	return flags.SetAnnotation(f.Name, sourceAnnotation, []string{source})
}

func mapKeys(m map[string]*pflag.Flag) []string {
	keys := make([]string, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

// Append appends settings as YAML for With, each with its source as a
// comment.
func Append(dst []byte, command *cobra.Command) ([]byte, error) {
	for _, s := range Of(command) {
		node := &yaml.Node{Kind: yaml.ScalarNode, Value: s.Value} // unquoted: true, not "true"
		if s.Value == "" {
			node.Style = yaml.DoubleQuotedStyle
		}
		var value any = node
		if list, ok := command.Flags().Lookup(s.Name).Value.(pflag.SliceValue); ok {
			value = list.GetSlice()
		}
		line, err := yaml.Marshal(map[string]any{s.Name: value})
		if err != nil {
			return dst, err
		}
		first, rest, _ := strings.Cut(string(line), "\n")
		dst = fmt.Appendf(dst, "%-40s # %s\n%s", first, s.Source, rest)
	}
	return dst, nil
}

// Value is the effective value of a flag, a string or a list of them, with its source.
type Value struct {
	Value  any    `json:"value"`
	Source string `json:"source"`
}

// Values returns the settings of Of by name.
func Values(command *cobra.Command) map[string]Value {
	values := make(map[string]Value)
	for _, s := range Of(command) {
		values[s.Name] = Value{s.Value, s.Source}
		if list, ok := command.Flags().Lookup(s.Name).Value.(pflag.SliceValue); ok {
			values[s.Name] = Value{append([]string{}, list.GetSlice()...), s.Source} // [] and not null
		}
	}
	return values
}
