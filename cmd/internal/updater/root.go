// Package updater contains the command docstore-updater: it appends documents to queues, and
// checks, compacts, repairs, dumps and describes queues.
package updater

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"docstore/cmd/internal/cli"
	"docstore/cmd/internal/man"
	"docstore/internal/vfs"
	"docstore/queue"
	"docstore/queue/shardset"
)

// New returns the command docstore-updater.
func New(env *cli.Env) *cobra.Command {
	root := &cobra.Command{
		Use:   "docstore-updater",
		Short: "Append documents to a queue, and maintain it",
		Long: `Docstore-updater appends documents to a queue: a directory of immutable segment
files that rsync copies to the machines that serve them (see docserviced).`,
		Args: cobra.NoArgs,
		RunE: cli.NeedsCommand,
	}
	root.AddCommand(newAppend(env), newDelete(env), newGet(env), newExplain(env), newCheck(env), newDump(env), newStats(env), newSeal(env), newBucket(env), newPublish(env), newManifests(env), newShow(env), newRestore(env), newValidate(env), man.New(root))
	for _, administrative := range []*cobra.Command{
		newRepair(env), newTruncate(env), newAnnounce(env), newPin(env), newUnpin(env), newRollback(env), newRevert(env), newDiscard(env), newRetain(env), newGC(env),
	} {
		root.AddCommand(cli.Audit(env, administrative, ""))
	}
	root.AddCommand(cli.Audit(env, newCompact(env), "erase-deleted-older-than"))
	return root
}

// addQueueFlag adds the required flag --queue.
func addQueueFlag(command *cobra.Command, dir *string) {
	command.Flags().StringVar(dir, "queue", "", "directory of the queue")
	if err := command.MarkFlagRequired("queue"); err != nil {
		panic(err) // the flag was just defined
	}
}

// requireDir distinguishes a missing queue from an empty one.
func requireDir(dir string) error {
	const advice = "give the directory that append writes, or a copy of it"
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return fmt.Errorf("no queue in %s; %s", dir, advice)
	case err == nil && !info.IsDir():
		return fmt.Errorf("%s is not a directory; %s", dir, advice)
	}
	return err
}

// queueFile matches the files of a queue.
var queueFile = regexp.MustCompile(`^(LOCK|LAYOUT|\d{10}.*)$`)

// requireQueue returns an error if dir has no queue.
func requireQueue(dir string) error {
	if err := requireDir(dir); err != nil {
		return err
	}
	names, err := vfs.OS.List(dir)
	if err == nil && !slices.ContainsFunc(names, queueFile.MatchString) {
		err = fmt.Errorf("no queue in %s; give the directory that append writes", dir)
	}
	return err
}

// requireNoOtherFiles refuses to create a queue in a directory with other files, except
// hidden files and lost+found.
func requireNoOtherFiles(dir string) error {
	names, err := vfs.OS.List(dir)
	if err != nil {
		return nil //nolint:nilerr // opening the queue creates the directory or reports the error
	}
	other := ""
	for _, name := range names {
		switch {
		case queueFile.MatchString(name):
			return nil
		case name != "lost+found" && !strings.HasPrefix(name, ".") && other == "":
			other = name
		}
	}
	if other != "" {
		return fmt.Errorf("%s is not a queue and contains other files, for example %s; give the directory of a queue, or an empty or new one", dir, other)
	}
	return nil
}

// cannotOpen adds advice to an error of opening a queue.
func cannotOpen(dir string, err error) error {
	switch {
	case errors.Is(err, queue.ErrLocked):
		return fmt.Errorf("%w; wait for it to end, or stop it", err)
	case errors.Is(err, queue.ErrIncomplete), errors.Is(err, shardset.ErrIncomplete):
		return err // it has advice
	case errors.Is(err, queue.ErrCorrupt):
		return fmt.Errorf("opening the queue %s: %w; see repair --help", dir, err)
	}
	return fmt.Errorf("opening the queue %s: %w", dir, err)
}
