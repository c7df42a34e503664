package updater

import (
	"context"
	"fmt"
	"time"

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
	var opts bucket.Options
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
		return checkBucket(command.Context(), env, args[0], opts)
	}
	addS3Flags(command, &opts)
	return command
}

// addS3Flags adds the flags of a store other than AWS.
func addS3Flags(command *cobra.Command, opts *bucket.Options) {
	command.Flags().StringVar(&opts.Endpoint, "s3-endpoint", "", "URL of an S3-compatible store other than AWS")
	command.Flags().BoolVar(&opts.PathStyle, "s3-path-style", false, "put the bucket's name into the path of requests")
}

// announceTime is the longest time that a flushed document waits for the updater, which announces five
// times a second, and for a server, which asks ten times a second.
const announceTime = 300 * time.Millisecond

// checkBucket prints the findings of bucket.Check, and the latencies of a correct store.
func checkBucket(ctx context.Context, env *cli.Env, url string, opts bucket.Options) error {
	b, err := (&bucketFlags{url: url, options: opts}).open(ctx, env.Log)
	if err != nil {
		return err
	}
	defer b.Close()
	findings, err := bucket.Check(ctx, b)
	if err != nil {
		return fmt.Errorf("check %s: %w", url, err)
	}
	out := cli.NewOutput(env.Stdout)
	failed := 0
	for _, f := range findings {
		if f.Err != nil {
			failed++
			out.Printf("FAILED  %s: %v\n", f.Property, f.Err)
			continue
		}
		out.Printf("ok      %s\n", f.Property)
	}
	if failed == 0 {
		l, err := bucket.Measure(ctx, b)
		if err != nil {
			return fmt.Errorf("measure %s: %w", url, err)
		}
		line := func(kind string, l bucket.Latency) {
			out.Printf("%-7s median %s, slowest %s\n", kind, units.FormatDuration(l.Median), units.FormatDuration(l.Slowest))
		}
		line("put", l.Put)
		line("get", l.Get)
		out.Printf("With append --announce, a flushed document is served after %s, at most %s.\n",
			units.FormatDuration(announceTime/2+l.Put.Median+l.Get.Median), units.FormatDuration(announceTime+l.Put.Slowest+l.Get.Slowest))
	}
	if err := out.Flush(); err != nil {
		return err
	}
	if failed > 0 {
		return fmt.Errorf("%s lacks %s of %d; do not publish to it", url, units.FormatCountOf(int64(failed), "property", "properties"), len(findings))
	}
	return nil
}
