// Testreport runs go test with its arguments, in the current directory, and prints a line for
// each package, the output of each failed test, and the totals:
//
//	go run docstore/internal/testreport [-slowest N] [ARGUMENT...]
//
// The output of the first failure is repeated at the end. The exit status is that of go test.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

func main() {
	slowest := flag.Int("slowest", 0, "number of packages in the list of the slowest")
	// The flags of go test are not known here.
	arguments := os.Args[1:]
	if len(arguments) > 1 && strings.TrimLeft(arguments[0], "-") == "slowest" {
		_ = flag.CommandLine.Parse(arguments[:2]) // exits on an error
		arguments = arguments[2:]
	}
	status, err := run(arguments, *slowest)
	if err != nil {
		fmt.Fprintln(os.Stderr, "testreport:", err)
		status = 1
	}
	os.Exit(status)
}

// maxLine cuts the line that prints the command: the packages can be many.
const maxLine = 120

// run runs go test and returns its exit status.
func run(arguments []string, slowest int) (int, error) {
	line := "go test " + strings.Join(arguments, " ")
	fmt.Println(line[:min(len(line), maxLine)])
	command := exec.Command("go", append([]string{"test", "-json"}, arguments...)...)
	command.Stderr = os.Stderr
	events, err := command.StdoutPipe()
	if err != nil {
		return 0, err
	}
	if err := command.Start(); err != nil {
		return 0, err
	}
	r := newReport(os.Stdout)
	readErr := r.read(events)
	err = command.Wait()
	r.end(slowest)
	var failed *exec.ExitError
	if errors.As(err, &failed) {
		return failed.ExitCode(), readErr
	}
	return 0, errors.Join(readErr, err)
}
