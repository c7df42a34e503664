package docserviced

import (
	"fmt"
	"math"

	"github.com/spf13/cobra"

	"docstore/cmd/internal/capacity"
	"docstore/cmd/internal/cli"
	"docstore/internal/units"
)

func newPlan(env *cli.Env) *cobra.Command {
	w := capacity.Workload{IDBytes: 29, Hot: 1, Batch: 1, Cores: 8}
	var bytes, stored units.Size
	memory := units.Size(64 << 30)
	var asJSON bool
	command := &cobra.Command{
		Use:   "plan --documents N --bytes SIZE --rate R",
		Short: "Compute the machines that a collection needs",
		Long: `Plan prints memory, disk, processors, network and the number of machines that
a collection needs, and the flags. It rests on costs that were measured with
documents of 0.91 KB on an AMD EPYC; the guide to operating, "Capacity", says
how to measure yours. Memory decides most: the index, and the documents that
most requests are for, should be in the page cache. Each column of machines can
lose two of them at the peak.`,
		Example: `  docserviced plan --documents 100e6 --bytes 910B --rate 100e3
  docserviced plan --documents 2e9 --bytes 4KiB --hot 0.1 --rate 500e3 --batch 50 --changes 2000`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			w.Bytes, w.Stored, w.Memory = float64(bytes), float64(stored), float64(memory)
			if err := w.Check(); err != nil {
				return cli.Usagef("%v", err)
			}
			if asJSON {
				return env.PrintJSON(w.Of())
			}
			return printPlan(env, &w)
		},
	}
	flags := command.Flags()
	flags.Float64Var(&w.Documents, "documents", 0, "number of documents")
	flags.Var(&bytes, "bytes", "mean size of a document")
	flags.Float64Var(&w.Rate, "rate", 0, "documents that front ends fetch a second, at the peak")
	flags.Float64Var(&w.Batch, "batch", w.Batch, "mean number of documents of a request")
	flags.Float64Var(&w.Changes, "changes", 0, "documents that are added or changed a second")
	flags.Float64Var(&w.Hot, "hot", w.Hot, "share of the documents that most requests are for, from 0 to 1")
	flags.Var(&stored, "stored", "mean size of a document in the queue, as docstore-updater stats shows (default 0.47 of --bytes)")
	flags.Float64Var(&w.IDBytes, "id-bytes", w.IDBytes, "mean size of an id")
	flags.Var(&memory, "machine-memory", "memory of a machine")
	flags.Float64Var(&w.Cores, "machine-cores", w.Cores, "processors of a machine")
	flags.BoolVar(&asJSON, "json", false, "print JSON: bytes, and bytes a second")
	flags.Lookup("bytes").DefValue, flags.Lookup("stored").DefValue = "", ""
	for _, name := range []string{"documents", "bytes", "rate"} {
		if err := command.MarkFlagRequired(name); err != nil {
			panic(err) // the flag was just defined
		}
	}
	return command
}

func printPlan(env *cli.Env, w *capacity.Workload) error {
	p := w.Of()
	out := cli.NewOutput(env.Stdout)
	line := func(name, format string, args ...any) { out.Printf("%-12s %s\n", name, fmt.Sprintf(format, args...)) }
	line("queue", "%s, half of it of replaced documents", sizeOf(p.Queue))
	line("index", "%s", sizeOf(p.Index))
	if p.Columns > 1 {
		line("columns", "%d, with %d shards: the index and the hot documents exceed the memory of one machine", p.Columns, p.Shards)
	}
	of := "machines"
	if p.Columns > 1 {
		of = "of a column"
	}
	line(of, "%d, of which %d can be away at the peak", p.Machines, capacity.SpareMachines)
	line("disk", "%s a machine, while a compaction arrives and the index is merged", sizeOf(p.Disk))
	line("memory", "%s a machine: --memory %s, page cache %s", sizeOf(p.Machine), sizeOf(p.Memory), sizeOf(p.PageCache))
	line("processors", "%.1f busy a machine at the peak", p.Cores)
	line("network", "%s/s sent by a machine, %s/s received by each copy", sizeOf(p.Network), sizeOf(p.Appends))
	out.Printf("\ndocserviced serve --memory %dMiB ...\n", int64(math.Ceil(p.Memory/(1<<20))))
	if p.Shards > 0 {
		out.Printf("docstore-updater append --shards %d ...\n", p.Shards)
	}
	return out.Flush()
}

func sizeOf(bytes float64) string { return units.FormatBytes(int64(bytes)) }
