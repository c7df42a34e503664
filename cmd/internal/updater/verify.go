package updater

import (
	"context"
	"fmt"

	"docstore/cmd/internal/cli"
	"docstore/internal/units"
	"docstore/queue/publish"
)

// verifyObjects reads every object that the commits of a collection reach.
func verifyObjects(ctx context.Context, env *cli.Env, flags *bucketFlags, asJSON bool) error {
	b, err := flags.open(ctx, env.Log)
	if err != nil {
		return err
	}
	defer b.Close()
	checked, err := publish.Check(ctx, b)
	if err != nil {
		return fmt.Errorf("verify %s: %w", flags.url, err)
	}
	if checked.Commits == 0 && len(checked.Problems) == 0 {
		return fmt.Errorf("verify %s: the bucket holds no collection: check the URL", flags.url)
	}
	if err := printChecked(env, &checked, asJSON); err != nil {
		return err
	}
	if n := len(checked.Problems); n > 0 {
		return fmt.Errorf("%s has %s: publish again, or restore from a copy", flags.url, units.FormatCountOf(int64(n), "damaged object", "damaged objects"))
	}
	return nil
}

func printChecked(env *cli.Env, c *publish.Checked, asJSON bool) error {
	if asJSON {
		problems := make([]string, len(c.Problems))
		for i, problem := range c.Problems {
			problems[i] = problem.Error()
		}
		return env.PrintJSON(struct {
			Commits   uint64   `json:"commits"`
			Manifests int      `json:"manifests"`
			Files     int      `json:"files"`
			Bytes     int64    `json:"bytes"`
			Problems  []string `json:"problems"`
		}{c.Commits, c.Manifests, c.Files, c.Bytes, problems})
	}
	out := cli.NewOutput(env.Stdout)
	for _, problem := range c.Problems {
		out.Printf("%v\n", problem)
	}
	out.Printf("%s, %s, %s, %s verified\n", units.FormatCountOf(int64(c.Commits), "commit", "commits"), //nolint:gosec // far below the limit
		units.FormatCountOf(int64(c.Manifests), "manifest", "manifests"), units.FormatCountOf(int64(c.Files), "file", "files"), units.FormatBytes(c.Bytes))
	return out.Flush()
}
