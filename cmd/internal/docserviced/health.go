package docserviced

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"docstore/cmd/internal/cli"
	"docstore/cmd/internal/httpclient"
	"docstore/docservice/server"
)

// healthTimeout bounds a health check.
const healthTimeout = 5 * time.Second

// healthInterval is the pause between two questions of --wait.
const healthInterval = 100 * time.Millisecond

// healthFlags are the flags of health.
type healthFlags struct {
	address string
	ready   bool
	json    bool
	wait    time.Duration
	access  httpclient.Flags
}

func newHealth(env *cli.Env) *cobra.Command {
	var h healthFlags
	command := &cobra.Command{
		Use:   "health",
		Short: "Check that a daemon runs, or is ready",
		Long: `Health asks a running daemon over HTTP whether it runs, or, with --ready,
whether it is ready, and exits with status 0 if so, otherwise 1. With --wait it
asks until then. With --json it prints the last readiness, as /readyz. It is the
health check of the container image, which has no other programs.`,
		Example: `  docserviced health --ready
  docserviced health --ready --wait 30s`,
		Args:    cobra.NoArgs,
		PreRunE: func(*cobra.Command, []string) error { return h.access.Check(h.address) },
		RunE: func(command *cobra.Command, _ []string) error {
			return h.run(command.Context(), env)
		},
	}
	flags := command.Flags()
	flags.StringVar(&h.address, "http", server.DefaultHTTP, "the daemon's --http, as HOST:PORT or https://HOST:PORT")
	flags.BoolVar(&h.ready, "ready", false, "also require that all collections are ready")
	flags.BoolVar(&h.json, "json", false, "print the readiness of all collections as a JSON object")
	flags.DurationVar(&h.wait, "wait", 0, "time to wait for it")
	h.access.Add(flags)
	return command
}

func (h *healthFlags) run(ctx context.Context, env *cli.Env) error {
	client, err := h.access.Open(healthTimeout, env.Log)
	if err != nil {
		return err
	}
	defer client.Close()
	deadline := env.Now().Add(h.wait)
	for {
		answer, err := h.ask(ctx, client)
		if err == nil || !env.Now().Before(deadline) || ctx.Err() != nil {
			return errors.Join(h.print(env, answer), err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(healthInterval):
		}
	}
}

// ask asks once. It returns the answer also if the daemon is not ready.
func (h *healthFlags) ask(ctx context.Context, client *httpclient.Client) (answer []byte, err error) {
	path := "/healthz"
	if h.ready || h.json {
		path = "/readyz"
	}
	answer, err = client.Get(ctx, h.address, path)
	if err != nil {
		return nil, fmt.Errorf("the daemon at %s does not answer: %w", h.address, err)
	}
	if !h.ready {
		return answer, nil
	}
	var state server.Readiness
	if err := json.Unmarshal(answer, &state); err != nil {
		return nil, fmt.Errorf("the answer of %s to /readyz: %w", h.address, err)
	}
	if !state.Ready {
		return answer, fmt.Errorf("the daemon at %s is not ready: %s", h.address, strings.TrimSpace(string(answer)))
	}
	return answer, nil
}

// print writes the answer with --json.
func (h *healthFlags) print(env *cli.Env, answer []byte) error {
	if !h.json || answer == nil {
		return nil
	}
	return env.PrintJSON(json.RawMessage(answer))
}
