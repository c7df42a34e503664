package ingest_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"docstore/ingest"
	"docstore/internal/crashtest"
	"docstore/internal/testseed"
	"docstore/internal/vfs"
	"docstore/queue"
	"docstore/queue/shard"
	"docstore/queue/shardset"
)

// childVariable makes the test program append the input to the directory that it names.
const childVariable = "INGEST_TEST_DIR"

const (
	killShards  = 64
	killRecords = 10_000
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(childVariable); dir != "" {
		if err := appendInput(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// appendInput continues with the records 0 to killRecords-1. Half of them are in few shards.
func appendInput(dir string) error {
	in := &input{name: "in"}
	for n := range killRecords {
		in.ids = append(in.ids, strconv.Itoa(n%(1+n/2)))
	}
	w, err := shardset.Open(dir, &shardset.Options{Layout: shard.Layout{Shards: killShards, Seed: 1}, SegmentBytes: 64 << 10})
	if err != nil {
		return err
	}
	to := ingest.CatchUp{Writer: w}
	from, err := to.Resume(in)
	if err != nil {
		return err
	}
	after := -1
	if len(from) > 0 {
		p, err := in.Position(from)
		if err != nil {
			return err
		}
		after = p.(int)
	}
	fmt.Println("appending") // the parent's clock starts
	for n := 0; ; n++ {
		b := in.batch(after, 100)
		if len(b.Records) == 0 {
			return errors.Join(to.End(), w.Close())
		}
		for i, r := range b.Records {
			has, err := to.Has(b, i)
			if err != nil {
				return err
			}
			if has {
				continue
			}
			if err := to.Put(queue.Record{ID: r.ID, Document: r.Document, Cursor: b.AppendCursor(nil, i)}); err != nil {
				return err
			}
		}
		after += len(b.Records)
		switch {
		case n%50 == 49:
			err = w.Seal() // with a checkpoint
		case n%5 == 0:
			err = w.Flush()
		}
		if err != nil {
			return err
		}
	}
}

// TestKill kills a program that appends to 64 shards with SIGKILL at random moments. In the
// end the shards have each record once.
func TestKill(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("no signals")
	}
	random := testseed.Rand(t)
	kills := crashtest.Share(6, 200)
	dir := filepath.Join(t.TempDir(), "queue")
	round := 0
	for killed := 0; ; {
		child := exec.Command(os.Args[0])
		child.Env = append(os.Environ(), childVariable+"="+dir)
		child.Stderr = os.Stderr
		out, err := child.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, child.Start())
		if killed < kills {
			_, _ = bufio.NewReader(out).ReadString('\n')
			time.Sleep(time.Duration(random.IntN(150)) * time.Millisecond)
			_ = child.Process.Kill()
		}
		_, _ = io.Copy(io.Discard, out)
		err = child.Wait()
		if killed < kills && err != nil {
			killed++
			continue
		}
		require.NoError(t, err)
		requireAll(t, dir)
		round++
		if killed >= kills {
			break
		}
		dir = filepath.Join(t.TempDir(), strconv.Itoa(round)) // the input ended before the kill
	}
	t.Log("rounds", round, "kills", kills)
}

func requireAll(t *testing.T, dir string) {
	all := entries(t, vfs.OS, dir, shard.Layout{Shards: killShards, Seed: 1})
	seen := make(map[string]bool, len(all))
	for _, document := range all {
		require.False(t, seen[document], "twice: %s", document)
		seen[document] = true
	}
	require.Len(t, seen, killRecords)
}
