package updater

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"docstore/cmd/internal/cli"
	"docstore/internal/units"
	"docstore/queue/bucket"
)

func newBucket(env *cli.Env) *cobra.Command {
	command := &cobra.Command{
		Use:   "bucket",
		Short: "Examine an object store",
		Long: `Bucket examines an S3-compatible object store, or a shared directory, in which
a collection is to be kept.`,
		Args: cobra.NoArgs,
		RunE: cli.NeedsCommand,
	}
	command.AddCommand(newBucketCheck(env))
	return command
}

func newBucketCheck(env *cli.Env) *cobra.Command {
	c := bucketCheck{env: env}
	command := &cobra.Command{
		Use:   "check URL",
		Short: "Prove that a store can hold collections",
		Long: `Check creates, reads, lists and deletes objects below URL/check/ and prints
which properties the store has. Of 16 concurrent attempts to create an object
exactly one must succeed: many stores accept a conditional PUT but do not
perform it atomically. If a property is missing, the exit status is 1. Then
check measures the latencies of the store, and prints after what time documents
are served. It sends about 1,200 requests and removes its objects.

The URL is s3://BUCKET/PREFIX or file:///DIRECTORY. Credentials and region come
from the environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION,
AWS_PROFILE) and from the files ~/.aws/credentials and ~/.aws/config.`,
		Example: `  docstore-updater bucket check s3://company-docs/jobs
  docstore-updater bucket check --s3-endpoint http://127.0.0.1:7070 --s3-path-style s3://docs/jobs
  docstore-updater bucket check file:///mnt/shared/jobs`,
		Args: cobra.ExactArgs(1),
	}
	command.RunE = func(command *cobra.Command, args []string) error {
		return c.run(command.Context(), args[0])
	}
	addS3Flags(command, &c.options)
	command.Flags().BoolVar(&c.json, "json", false, "print a JSON object")
	return command
}

// addS3Flags adds the flags of a store other than AWS.
func addS3Flags(command *cobra.Command, opts *bucket.Options) {
	command.Flags().StringVar(&opts.Endpoint, "s3-endpoint", "", "URL of an S3-compatible store other than AWS")
	command.Flags().BoolVar(&opts.PathStyle, "s3-path-style", false, "put the bucket's name into the path of requests")
}

// announceTime is the longest time in seconds that a flushed document waits for the updater, which
// announces five times a second, and for a server, which asks ten times a second.
const announceTime = 0.3

// bucketCheck is a run of the command.
type bucketCheck struct {
	env     *cli.Env
	options bucket.Options
	json    bool
}

// checkedBucket is the output of bucket check --json.
type checkedBucket struct {
	Properties []checkedProperty `json:"properties"`
	// Put and Get are missing if the store lacks a property.
	Put *bucketLatency `json:"put,omitempty"`
	Get *bucketLatency `json:"get,omitempty"`
}

type checkedProperty struct {
	Property string `json:"property"`
	Problem  string `json:"problem,omitempty"` // empty: the store has the property
}

type bucketLatency struct {
	MedianSeconds  float64 `json:"median_seconds"`
	SlowestSeconds float64 `json:"slowest_seconds"`
}

func latencyOf(l bucket.Latency) *bucketLatency {
	return &bucketLatency{l.Median.Seconds(), l.Slowest.Seconds()}
}

// run prints the findings of bucket.Check, and the latencies of a correct store.
func (c *bucketCheck) run(ctx context.Context, url string) error {
	b, err := (&bucketFlags{url: url, options: c.options}).open(ctx, c.env.Log)
	if err != nil {
		return err
	}
	defer b.Close()
	findings, err := bucket.Check(ctx, b)
	if err != nil {
		return fmt.Errorf("check %s: %w", url, err)
	}
	var checked checkedBucket
	failed := 0
	for _, f := range findings {
		p := checkedProperty{Property: f.Property}
		if f.Err != nil {
			failed++
			p.Problem = f.Err.Error()
		}
		checked.Properties = append(checked.Properties, p)
	}
	if failed == 0 {
		l, err := bucket.Measure(ctx, b)
		if err != nil {
			return fmt.Errorf("measure %s: %w", url, err)
		}
		checked.Put, checked.Get = latencyOf(l.Put), latencyOf(l.Get)
	}
	if c.json {
		err = c.env.PrintJSON(checked)
	} else {
		err = checked.print(c.env)
	}
	if err != nil {
		return err
	}
	if failed > 0 {
		return fmt.Errorf("%s lacks %s of %d; do not publish to it", url, units.FormatCountOf(int64(failed), "property", "properties"), len(findings))
	}
	return nil
}

func (c *checkedBucket) print(env *cli.Env) error {
	out := cli.NewOutput(env.Stdout)
	for _, p := range c.Properties {
		if p.Problem != "" {
			out.Printf("FAILED  %s: %s\n", p.Property, p.Problem)
		} else {
			out.Printf("ok      %s\n", p.Property)
		}
	}
	if c.Put != nil {
		line := func(kind string, l *bucketLatency) {
			out.Printf("%-7s median %s, slowest %s\n", kind, units.FormatSeconds(l.MedianSeconds), units.FormatSeconds(l.SlowestSeconds))
		}
		line("put", c.Put)
		line("get", c.Get)
		out.Printf("With append --announce, a flushed document is served after %s, at most %s.\n",
			units.FormatSeconds(announceTime/2+c.Put.MedianSeconds+c.Get.MedianSeconds), units.FormatSeconds(announceTime+c.Put.SlowestSeconds+c.Get.SlowestSeconds))
	}
	return out.Flush()
}
