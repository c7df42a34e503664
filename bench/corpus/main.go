// Corpus converts the package list of a Debian system to the documents of the benchmarks. Those of
// Debian 12 differ from those of the published figures only by updates of packages, 0.5 %:
//
//	cd bench && apt-cache dumpavail | go run ./corpus | gzip > debian.ndjson.gz
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"docstore/bench/internal/command"
)

// maxLineBytes limits a line of the list; the longest of Debian 12 has 30 KB.
const maxLineBytes = 1 << 20

func main() {
	command.Main(func(args []string) error {
		if len(args) > 0 {
			return errors.New("want no arguments, but a list of packages on standard input")
		}
		return convert(os.Stdin, os.Stdout)
	})
}

// convert writes a line for each paragraph: the id, which is the package and its version, and the
// fields in the order of the list.
func convert(in io.Reader, to io.Writer) error {
	out := bufio.NewWriter(to)
	var names, values []string
	end := func() error {
		if len(names) == 0 {
			return nil
		}
		line, err := record(names, values)
		names, values = names[:0], values[:0]
		_, failed := out.Write(line)
		return errors.Join(err, failed)
	}
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, maxLineBytes)
	for number := 1; lines.Scan(); number++ {
		line := lines.Text()
		name, value, found := strings.Cut(line, ":")
		switch {
		case line == "":
			if err := end(); err != nil {
				return fmt.Errorf("line %d: %w", number, err)
			}
		case line[0] == ' ' && len(values) > 0: // continues the field
			values[len(values)-1] += "\n" + strings.TrimSpace(line)
		case found && line[0] != ' ':
			names, values = append(names, strings.ReplaceAll(strings.ToLower(name), "-", "_")), append(values, strings.TrimSpace(value))
		default:
			return fmt.Errorf("line %d: %.80q is no field", number, line)
		}
	}
	return errors.Join(lines.Err(), end(), out.Flush())
}

// record returns the line of a package.
func record(names, values []string) ([]byte, error) {
	id := map[string]string{}
	for i, name := range names {
		id[name] = values[i]
	}
	if id["package"] == "" || id["version"] == "" {
		return nil, errors.New("the record before has no package or version")
	}
	var line bytes.Buffer
	text := json.NewEncoder(&line)
	text.SetEscapeHTML(false)
	field := func(separator, name, value string) {
		fmt.Fprintf(&line, "%s%q: ", separator, name)
		_ = text.Encode(value) // a string, to a buffer
		line.Truncate(line.Len() - 1)
	}
	field("{", "id", id["package"]+"="+id["version"])
	for i, name := range names {
		field(", ", name, values[i])
	}
	line.WriteString("}\n")
	return line.Bytes(), nil
}
