package main

import (
	"fmt"
	"os"
	"runtime"
	"strconv"

	"github.com/spf13/cobra"

	"docstore/cmd/internal/cli"
)

// configPrefix is the prefix of the environment variables of settings.
const configPrefix = "DOCSERVICED"

func newConfig(env *cli.Env) *cobra.Command {
	o := newOptions() // with all flags of serve
	command := newServeWith(env, o)
	explain := false
	command.Flags().BoolVar(&explain, "explain", false, "print what serve derives from the settings and from this machine, with the reasons")
	command.Use = "config [FLAGS OF SERVE]"
	command.Short = "Print the effective settings of serve and their sources"
	command.Long = `Config reads the settings of serve from the command line, the environment and a
file, and prints the result as YAML, each setting with its source: the line of
the file, the variable, a flag, or the default. Save the output to use it with
--config. Config starts nothing; it reports invalid settings as serve would.

With --explain it prints instead how serve would divide the memory of this
machine or container, and the limits that follow from it.`
	command.Example = `  docserviced config --config /etc/docserviced.yaml
  docserviced config --collection jobs=/srv/queue/jobs --data /srv/index > docserviced.yaml
  docserviced config --collection jobs=/srv/queue/jobs --data /srv/index --explain`
	command.RunE = func(command *cobra.Command, _ []string) error {
		if explain {
			out := cli.NewOutput(env.Stdout)
			o.explain(out, planForThisMachine(o.memory))
			return out.Flush()
		}
		text, err := cli.AppendSettings(nil, command)
		if err != nil {
			return err
		}
		_, err = env.Stdout.Write(text)
		return err
	}
	return command
}

// explain prints what follows from the settings and the memory.
func (o *daemonOptions) explain(out *cli.Output, p memoryPlan) {
	line := func(name, value, why string) { out.Printf("%-14s %10s  %s\n", name, value, why) }
	shares := shareMemory(p.memory)
	line("memory", cli.FormatBytes(p.memory), p.why)
	line("  index", cli.FormatBytes(shares.index), "memtables and Bloom filters")
	line("  dictionaries", cli.FormatBytes(shares.dictionaries), "of compressed documents")
	line("  messages", cli.FormatBytes(shares.messages), "requests and responses")
	if limit := os.Getenv("GOMEMLIMIT"); limit != "" {
		line("go", limit, "GOMEMLIMIT")
	} else {
		why := fmt.Sprintf("limit of the Go runtime: %d times memory, at least %s", goMemoryFactor, cli.FormatBytes(leastGoMemory))
		if p.machine.Limited {
			why += fmt.Sprintf(", at most %d %% of the container", containerShare)
		}
		line("go", cli.FormatBytes(p.goLimit), why)
	}
	if p.machine.Bytes > 0 {
		line("page cache", cli.FormatBytes(max(0, p.machine.Bytes-p.goLimit)), "at least, for files of indexes and documents, if nothing else runs here")
	}
	line("max-conns", strconv.Itoa(o.limits.maxConns(p.memory)), fmt.Sprintf("--max-conns %d, at most one per %s of memory", o.limits.conns, cli.FormatBytes(connMemory)))
	line("max-in-flight", strconv.Itoa(o.limits.maxInFlight(p.memory)), fmt.Sprintf("--max-in-flight %d, at most one per %s of memory", o.limits.inFlight, cli.FormatBytes(inFlightMemory)))
	line("processors", strconv.Itoa(runtime.GOMAXPROCS(0)), "GOMAXPROCS, or the limit of the container")
}
