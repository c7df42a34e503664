package boxcar

import (
	"errors"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"docstore/boxcarrpc"
	"docstore/cmd/internal/cli"
	"docstore/internal/units"
)

func newSlots(env *cli.Env) *cobra.Command {
	var o operation
	var asJSON bool
	command := &cobra.Command{
		Use:   "slots --servers A,B,...",
		Short: "Show the granted slots of servers",
		Long: `Slots shows every granted slot of each server: the client that holds it, for
how long, and its requests and failed requests. It also shows the share of the
server's requests that come from clients of other zones. A slot leased by this
command may be listed. If a server does not answer, slots continues with
the others and exits with status 1.`,
		Example: `  boxcar slots
  boxcar slots --servers 10.0.0.1:7070,10.0.0.2:7070`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			servers, err := o.addresses(command.Context(), env)
			if err != nil {
				return err
			}
			out := cli.NewOutput(env.Stdout)
			var failed []error
			for _, server := range servers {
				board, err := o.ask(command.Context(), env, server, boxcarrpc.MethodBoard)
				switch {
				case err != nil:
					err = fmt.Errorf("%s: %w", server, err)
				case asJSON:
					out.PrintJSON(serverBoard{server, board})
				default:
					err = printBoard(out, server, board)
				}
				failed = append(failed, err)
				if command.Context().Err() != nil || out.Err() != nil {
					break
				}
			}
			return errors.Join(append(failed, out.Flush())...)
		},
	}
	o.addFlags(command, 5*time.Second, "timeout of each response")
	command.Flags().BoolVar(&asJSON, "json", false, "write a JSON object per server and line")
	return command
}

// serverBoard is a line of slots --json.
type serverBoard struct {
	Server string `json:"server"`
	boxcarrpc.Board
}

func printBoard(out *cli.Output, server string, b boxcarrpc.Board) error {
	draining := ""
	if b.Draining {
		draining = "draining, "
	}
	zone := ""
	if b.Zone != "" {
		zone = fmt.Sprintf("; zone %s, %.2f %% of %s from other zones", b.Zone, 100*float64(b.OtherZone)/float64(max(b.Requests, 1)),
			units.FormatCountOf(int64(b.Requests), "request", "requests"))
	}
	out.Printf("%s (%s): %s%s, lowest free %d, %s in flight, %d of them streams%s\n", server, b.Name, draining,
		units.FormatCountOf(int64(len(b.Slots)+b.More), "slot", "slots"), b.LowestFree, units.FormatCountOf(int64(b.InFlight), "request", "requests"), b.Streams, zone)
	table := tabwriter.NewWriter(writerOf{out}, 0, 0, 2, ' ', 0)
	rows := []byte("slot\tclient\taddress\tage\trequests\terrors\tstate\n")
	for _, s := range b.Slots {
		state := "free"
		if s.Busy {
			state = "busy"
		}
		client := s.Client
		if s.Zone != "" {
			client += " in " + s.Zone
		}
		if s.Identity != "" {
			client += " as " + s.Identity
		}
		rows = fmt.Appendf(rows, "%d\t%s\t%s\t%s\t%d\t%d\t%s\n", s.Number, client, s.Address, s.Age.Truncate(time.Second), s.Requests, s.Errors, state)
	}
	if b.More > 0 {
		rows = fmt.Appendf(rows, "and %d more\n", b.More)
	}
	_, err := table.Write(rows)
	return errors.Join(err, table.Flush())
}

// writerOf adapts an Output to io.Writer; the Output keeps the error.
type writerOf struct{ out *cli.Output }

func (w writerOf) Write(p []byte) (int, error) {
	w.out.Write(p)
	return len(p), w.out.Err()
}
