package updater

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/cmd/internal/cli"
	"docstore/internal/testseed"
)

// resumer appends to one queue repeatedly.
type resumer struct {
	*testing.T
	dir, queueDir string
}

func newResumer(t *testing.T) *resumer {
	dir := t.TempDir()
	return &resumer{t, dir, filepath.Join(dir, "queue")}
}

func (r *resumer) file(name string, lines ...string) string {
	r.Helper()
	return write(r.T, filepath.Join(r.dir, name), strings.Join(lines, "\n")+"\n")
}

func (r *resumer) resume(files ...string) result {
	return run(r.Context(), strings.NewReader(""), append([]string{"append", "--resume", "--queue", r.queueDir}, files...)...)
}

// requireResumed requires that resuming makes the queue hold these lines.
func (r *resumer) requireResumed(want []string, files ...string) {
	r.Helper()
	result := r.resume(files...)
	require.Equal(r, cli.ExitOK, result.status, result.stderr)
	require.Equal(r, strings.Join(want, "\n")+"\n", dump(r.T, r.queueDir))
}

// refuses requires that resuming fails and appends nothing.
func (r *resumer) refuses(problem string, files ...string) {
	r.Helper()
	before := dump(r.T, r.queueDir)
	result := r.resume(files...)
	require.Equal(r, cli.ExitFailure, result.status)
	require.Contains(r, result.lastLine(), problem)
	require.Equal(r, before, dump(r.T, r.queueDir))
}

const a1, a2, a3, b1, b2, b3, c1 = `{"id":"a1"}`, `{"id":"a2"}`, `{"id":"a3"}`, `{"id":"b1"}`, `{"id":"b2"}`, `{"id":"b3"}`, `{"id":"c1"}`

func TestResume(t *testing.T) {
	t.Run("again is nothing", func(t *testing.T) {
		r := newResumer(t)
		a, b := r.file("a", a1, a2), r.file("b", b1)
		r.requireResumed([]string{a1, a2, b1}, a, b)
		r.requireResumed([]string{a1, a2, b1}, a, b)
	})
	t.Run("a file that has grown, and a new one", func(t *testing.T) {
		r := newResumer(t)
		a := r.file("a", a1)
		r.requireResumed([]string{a1}, a)
		r.file("a", a1, a2)
		r.requireResumed([]string{a1, a2, b1}, a, r.file("b", b1))
	})
	t.Run("a new file alone", func(t *testing.T) {
		r := newResumer(t)
		r.requireResumed([]string{a1}, r.file("a", a1))
		r.requireResumed([]string{a1, b1}, r.file("b", b1))
	})
	t.Run("after a bad line that was corrected", func(t *testing.T) {
		r := newResumer(t)
		a := r.file("a", a1, "bad", a3)
		require.Equal(t, cli.ExitFailure, r.resume(a).status)
		b := r.file("b", b1)
		r.refuses("the last run ended in the middle of "+a+", after line 1, and that file is not among the arguments", b)
		r.file("a", a1, a2, a3)
		r.requireResumed([]string{a1, a2, a3, b1}, a, b)
	})
	t.Run("a file that was renamed", func(t *testing.T) {
		r := newResumer(t)
		a := r.file("a", a1)
		r.requireResumed([]string{a1}, a)
		renamed := filepath.Join(r.dir, "renamed")
		require.NoError(t, os.Rename(a, renamed))
		r.requireResumed([]string{a1}, renamed)
	})
	t.Run("no newline at the end, then one", func(t *testing.T) {
		r := newResumer(t)
		a := write(t, filepath.Join(r.dir, "a"), a1)
		r.requireResumed([]string{a1}, a)
		r.requireResumed([]string{a1}, a)
		r.file("a", a1, a2)
		r.requireResumed([]string{a1, a2}, a)
	})
	t.Run("blank lines before a last line without newline", func(t *testing.T) {
		r := newResumer(t)
		a := write(t, filepath.Join(r.dir, "a"), a1+"\n\n \n"+a2)
		r.requireResumed([]string{a1, a2}, a)
		r.requireResumed([]string{a1, a2}, a)
	})
	t.Run("a last line that has grown", func(t *testing.T) {
		r := newResumer(t)
		a := write(t, filepath.Join(r.dir, "a"), a1)
		r.requireResumed([]string{a1}, a)
		write(t, a, a1+" ")
		r.refuses("has changed since", a)
	})
	t.Run("a file that was cut", func(t *testing.T) {
		r := newResumer(t)
		a := r.file("a", a1, a2)
		r.requireResumed([]string{a1, a2}, a)
		r.file("a", a1)
		r.refuses(a+": cannot continue after line 2, at byte 24: the part that was read has changed since; restore the file", a)
	})
	t.Run("a file that was replaced", func(t *testing.T) {
		r := newResumer(t)
		a := r.file("a", a1, a2)
		r.requireResumed([]string{a1, a2}, a)
		require.NoError(t, os.Remove(a))
		r.file("a", b1, b2)
		r.refuses("has changed since", a)
	})
	t.Run("the line before the place was changed", func(t *testing.T) {
		r := newResumer(t)
		long := strings.Repeat(" ", 4<<10) // of the cursor's sample
		a := r.file("a", a1+long, a2)
		r.requireResumed([]string{a1 + long, a2}, a)
		r.file("a", a1+long, a3)
		r.refuses("has changed since", a)
	})
	t.Run("deletes count as lines", func(t *testing.T) {
		r := newResumer(t)
		a := r.file("a", a1, `{"id":"a1","_delete":true}`)
		r.requireResumed([]string{a1, `{"id":"a1","_delete":true}`}, a)
		r.requireResumed([]string{a1, `{"id":"a1","_delete":true}`}, a)
	})
	t.Run("a pipe between runs changes nothing", func(t *testing.T) {
		r := newResumer(t)
		a := r.file("a", a1)
		r.requireResumed([]string{a1}, a)
		ok(t, c1, "append", "--queue", r.queueDir)
		r.file("a", a1, a2)
		r.requireResumed([]string{a1, c1, a2}, a)
	})
	t.Run("a pipe logs that it cannot be resumed", func(t *testing.T) {
		r := newResumer(t)
		result := ok(t, a1, "append", "--resume", "--queue", r.queueDir)
		require.Contains(t, result.stderr, "a pipe cannot be resumed")
	})
}

// TestInterruptedAtRandom interrupts the updater repeatedly; resuming neither loses nor
// repeats a line.
func TestInterruptedAtRandom(t *testing.T) {
	random := testseed.Rand(t)
	files, want := writeFiles(t, 3, 2000)
	args := append([]string{"append", "--queue", filepath.Join(t.TempDir(), "queue"), "--resume", "--quiet", "--segment-size", "32KiB", "--codec", "none"}, files...)
	interrupted := 0
	// The longest run grows, so that a slow machine reaches the end, too.
	for longest := 500 * time.Microsecond; ; longest += longest / 8 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(random.Int64N(int64(longest))))
		r := run(ctx, nil, args...)
		cancel()
		if r.status == cli.ExitOK {
			break
		}
		require.Contains(t, r.lastLine(), "interrupted ")
		interrupted++
	}
	t.Logf("interrupted %d times", interrupted)
	require.Equal(t, want, dump(t, args[2]))
}

// TestKilledAtRandom kills the updater with SIGKILL repeatedly.
func TestKilledAtRandom(t *testing.T) {
	random := testseed.Rand(t)
	files, want := writeFiles(t, 3, 6000)
	args := append([]string{"append", "--queue", filepath.Join(t.TempDir(), "queue"), "--resume", "--flush-every", "50", "--segment-size", "256KiB"}, files...)
	for range 5 {
		command := exec.Command(os.Args[0], args...)
		command.Env = append(os.Environ(), asCommand+"=1")
		require.NoError(t, command.Start())
		time.Sleep(time.Duration(random.IntN(60)) * time.Millisecond)
		_ = command.Process.Kill() // it may have ended already
		_ = command.Wait()
		if _, err := os.Stat(args[2]); err == nil {
			require.True(t, strings.HasPrefix(want, dump(t, args[2])), "the queue must hold a prefix of the input")
		}
	}
	ok(t, "", args...)
	require.Equal(t, want, dump(t, args[2]))
}

// writeFiles writes files of many short lines and returns their names and their text.
func writeFiles(t *testing.T, files, lines int) (names []string, all string) {
	t.Helper()
	dir := t.TempDir()
	var text strings.Builder
	for i := range files {
		start := text.Len()
		for j := range lines {
			fmt.Fprintf(&text, `{"id":"%d-%d","text":"%x"}`+"\n", i, j, uint64(i*lines+j)*0x9e3779b97f4a7c15)
		}
		names = append(names, write(t, filepath.Join(dir, fmt.Sprint(i)), text.String()[start:]))
	}
	return names, text.String()
}
