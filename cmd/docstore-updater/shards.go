package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"docstore/cmd/internal/cli"
	"docstore/cmd/internal/meter"
	"docstore/internal/vfs"
	"docstore/queue/shard"
)

// queueDirs returns the directories of the queues in dir: of its shards, or dir itself if it
// is not divided.
func queueDirs(dir string) ([]string, error) {
	if err := requireDir(dir); err != nil {
		return nil, err
	}
	layout, err := shard.Read(vfs.OS, dir)
	if err != nil {
		return nil, err // it has advice
	}
	dirs := make([]string, layout.Shards)
	for i := range dirs {
		dirs[i] = layout.Dir(dir, i)
		if _, err := os.Stat(dirs[i]); errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("%s is missing, and %s has %d shards; restore it from a copy", dirs[i], dir, layout.Shards)
		}
	}
	return dirs, nil
}

// queueOf returns the directory of the queue in dir that has the id.
func queueOf(dir string, id []byte) (string, error) {
	dirs, err := queueDirs(dir)
	if err != nil || len(dirs) == 1 {
		return dir, err
	}
	layout, err := shard.Read(vfs.OS, dir)
	if err != nil {
		return "", err
	}
	return dirs[layout.Shard(id)], nil
}

// requireUndivided refuses a divided queue for a command whose arguments or results have
// positions, which are those of a shard.
func requireUndivided(dir, command string) error {
	dirs, err := queueDirs(dir)
	if err == nil && len(dirs) > 1 {
		err = fmt.Errorf("%s has %d shards, and %s works on one of them: give --queue %s, for example", dir, len(dirs), command, dirs[0])
	}
	return err
}

// progressOf returns the progress of work on several queues, one after the other, and a
// function that ends the display. The progress begins again at zero with each of them.
func progressOf(env *cli.Env, verb string, quiet bool) (progress func(done, total int64), finish func()) {
	if quiet {
		return func(int64, int64) {}, func() {}
	}
	var bar *meter.Meter
	var before, beforeTotal, lastDone, lastTotal int64
	progress = func(done, total int64) {
		if done < lastDone {
			before, beforeTotal = before+lastDone, beforeTotal+lastTotal
		}
		lastDone, lastTotal = done, total
		if bar == nil {
			bar = meter.New(env, verb, total)
		}
		bar.SetTotal(beforeTotal + total)
		bar.Update(0, before+done)
	}
	return progress, func() { bar.Finish() }
}
