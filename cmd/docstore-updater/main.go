// Docstore-updater writes document queues: it appends documents from files,
// and checks, dumps, describes and seals what it has written.
package main

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"docstore/cmd/internal/cli"
	"docstore/internal/vfs"
	"docstore/queue"
)

func main() { cli.Main(newRoot) }

func newRoot(env *cli.Env) *cobra.Command {
	root := &cobra.Command{
		Use:   "docstore-updater",
		Short: "Append documents to a queue, and look after it",
		Long: `Docstore-updater appends documents to a queue: a directory of immutable segment
files that rsync copies to the machines that serve them (see docserviced).`,
		Args: cobra.NoArgs,
		RunE: cli.NeedsCommand,
	}
	root.AddCommand(newAppend(env), newCheck(env), newDump(env), newStats(env), newSeal(env), newCompact(env), newRepair(env), newTruncate(env), newBucket(env))
	return root
}

// addQueueFlag gives a command its --queue.
func addQueueFlag(command *cobra.Command, dir *string) {
	command.Flags().StringVar(dir, "queue", "", "directory of the queue")
	if err := command.MarkFlagRequired("queue"); err != nil {
		panic(err) // the flag was defined a line above
	}
}

// requireDir tells a queue that is not there from one that is empty.
func requireDir(dir string) error {
	const advice = "give the directory that append writes, or a copy of it"
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return fmt.Errorf("there is no queue %s; %s", dir, advice)
	case err == nil && !info.IsDir():
		return fmt.Errorf("%s is not a directory; %s", dir, advice)
	}
	return err
}

// queueFile is the name of a file that makes a directory a queue's.
var queueFile = regexp.MustCompile(`^(LOCK|\d{10}.*)$`)

// requireNothingElse refuses to begin a queue in a directory of other files. What begins
// with a dot and the lost+found of a file system may be there.
func requireNothingElse(fsys vfs.FS, dir string) error {
	names, err := fsys.List(dir)
	if err != nil {
		return nil //nolint:nilerr // opening the queue makes the directory, or fails with the reason
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
		return fmt.Errorf("%s is no queue and holds other files, such as %s; give the directory of a queue, or an empty or new one", dir, other)
	}
	return nil
}

// cannotOpen says why a queue cannot be opened, and what to do.
func cannotOpen(dir string, err error) error {
	switch {
	case errors.Is(err, queue.ErrLocked):
		return fmt.Errorf("%w; wait for it to end, or stop it", err)
	case errors.Is(err, queue.ErrIncomplete):
		return err // it says what to do
	case errors.Is(err, queue.ErrCorrupt):
		return fmt.Errorf("opening the queue %s: %w; repair --help says what to do", dir, err)
	}
	return fmt.Errorf("opening the queue %s: %w", dir, err)
}
