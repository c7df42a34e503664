package e2e

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/internal/testprocess"
)

// TestUnits verifies the units with systemd-analyze, using the commands that were built.
func TestUnits(t *testing.T) {
	t.Parallel()
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("systemd-analyze is not here")
	}
	script, err := filepath.Abs(syncScript)
	require.NoError(t, err)
	units, err := filepath.Glob(filepath.Join("..", "..", "deploy", "systemd", "*"))
	require.NoError(t, err)
	require.NotEmpty(t, units)
	installed := regexp.MustCompile(`/usr/local/bin/([a-z-]+)`)
	dir := t.TempDir()
	args := []string{"verify", "--man=no"}
	for _, unit := range units {
		content, err := os.ReadFile(unit)
		require.NoError(t, err)
		content = installed.ReplaceAllFunc(content, func(path []byte) []byte {
			if name := filepath.Base(string(path)); name != "docstore-sync" {
				return []byte(filepath.Join(binaries, name))
			}
			return []byte(script)
		})
		// systemd-analyze verifies a template by one of its instances.
		name := regexp.MustCompile(`@\.`).ReplaceAllString(filepath.Base(unit), "@jobs.")
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, content, 0o644))
		args = append(args, path)
	}
	out, err := exec.Command(analyze, args...).CombinedOutput()
	require.NoError(t, err, string(out))
	require.Empty(t, string(out))
}

// TestSyncScriptUsage: wrong arguments are reported, and nothing is copied.
func TestSyncScriptUsage(t *testing.T) {
	t.Parallel()
	written, copied := t.TempDir(), t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(written, "LOCK"), nil, 0o644))
	for name, test := range map[string]struct {
		args   []string
		status int
		says   string
	}{
		"help":                       {[]string{"--help"}, 0, "usage: docstore-sync"},
		"nothing":                    {nil, 2, "give SOURCE and TARGET"},
		"an unknown option":          {[]string{"--fast", "a", "b"}, 2, "--fast: no such option"},
		"no value":                   {[]string{"--interval"}, 2, "--interval needs a value"},
		"no number":                  {[]string{"--interval", "--once", "a", "b"}, 2, "not a number"},
		"no interval":                {[]string{"--interval", "abc", "a", "b"}, 2, "--interval abc: not a number of seconds"},
		"an interval of two numbers": {[]string{"--interval", "1.2.3", "a", "b"}, 2, "not a number of seconds"},
		"a timeout with a fraction":  {[]string{"--timeout", "1.5", "a", "b"}, 2, "--timeout 1.5: not a number of seconds"},
		"no directory":               {[]string{"a", filepath.Join(copied, "none")}, 1, "is not a directory"},
		"a writer's":                 {[]string{"a", written}, 1, "is written by docstore-updater"},
		"a source that is not there": {[]string{"--once", filepath.Join(copied, "none"), copied}, 1, "cannot list"},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := exec.Command(syncScript, test.args...)
			out, _ := cmd.CombinedOutput() // the exit status is checked
			require.Equal(t, test.status, cmd.ProcessState.ExitCode(), string(out))
			require.Contains(t, string(out), test.says)
		})
	}
}

// TestOneSyncScriptToATarget: a second script is rejected, unless the first exits within a
// short time.
func TestOneSyncScriptToATarget(t *testing.T) {
	t.Parallel()
	source, target := t.TempDir(), t.TempDir()
	sealSegment(t, source, corpus(t)[:10])
	lock := filepath.Join(target, ".sync", "lock")
	require.NoError(t, os.Mkdir(filepath.Dir(lock), 0o755))
	hold := func() (release func()) {
		holder := exec.Command("flock", lock, "sh", "-c", "echo held; read line")
		stdin, err := holder.StdinPipe()
		require.NoError(t, err)
		stdout, err := holder.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, holder.Start())
		_, err = bufio.NewReader(stdout).ReadString('\n')
		require.NoError(t, err)
		return func() {
			require.NoError(t, stdin.Close())
			_ = holder.Wait() // read fails at end of input
		}
	}
	once := func() (string, error) {
		out, err := exec.Command(syncScript, "--once", source, target).CombinedOutput()
		return string(out), err
	}

	release := hold()
	out, err := once()
	require.Error(t, err)
	require.Contains(t, out, "another docstore-sync is copying to "+target)
	require.Empty(t, segments(t, target))
	release()

	release = hold()
	waiting := testprocess.Start(t, exec.Command(syncScript, "--once", source, target))
	release()
	waiting.WaitExit(t)
	require.Len(t, segments(t, target), 1)
}

// TestSyncScriptResumesPartialFile: rsync leaves a partial file when a transfer is
// interrupted or the disk is full. Some versions of rsync cannot resume from a file in
// their partial directory: the transfer fails its verification, every time.
func TestSyncScriptResumesPartialFile(t *testing.T) {
	t.Parallel()
	source, target := t.TempDir(), t.TempDir()
	name := sealSegment(t, source, corpus(t)[:2000])
	want, err := os.ReadFile(filepath.Join(source, name))
	require.NoError(t, err)
	partialDir := filepath.Join(target, ".sync", "partial")
	require.NoError(t, os.MkdirAll(partialDir, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(partialDir, name), want[:2*len(want)/3], 0o600))
	r := resumeReplica(t, source, target)
	copied := filepath.Join(target, name)
	r.script.WaitUntil(t, copied, func() bool {
		_, err := os.Stat(copied)
		return err == nil
	})
	got, err := os.ReadFile(copied)
	require.NoError(t, err)
	require.Equal(t, want, got)
	require.Empty(t, r.script.Output.String())
	r.stop()
	require.Less(t, r.sent(t), int64(len(want)/2), "the partial file is not sent again")
}

// TestSyncScriptCopiesLinkedSegments: a segment of the source that is a symbolic link is copied,
// and --delete keeps its copy. A link without a file is a problem, and nothing is deleted.
func TestSyncScriptCopiesLinkedSegments(t *testing.T) {
	t.Parallel()
	documents := corpus(t)[:200]
	source, target, other := t.TempDir(), t.TempDir(), t.TempDir()
	names := []string{sealSegment(t, source, documents[:100]), sealSegment(t, source, documents[100:])}
	once := func(target string) (string, error) {
		out, err := exec.Command(syncScript, "--delete", "--once", source, target).CombinedOutput()
		return string(out), err
	}
	out, err := once(target)
	require.NoError(t, err, out)
	moved := filepath.Join(other, names[0])
	require.NoError(t, os.Rename(filepath.Join(source, names[0]), moved))
	require.NoError(t, os.Symlink(moved, filepath.Join(source, names[0])))
	for _, target := range []string{target, t.TempDir()} {
		out, err := once(target)
		require.NoError(t, err, out)
		for _, name := range names {
			want, err := os.ReadFile(filepath.Join(source, name))
			require.NoError(t, err)
			got, err := os.ReadFile(filepath.Join(target, name))
			require.NoError(t, err)
			require.Equal(t, want, got)
		}
	}
	require.NoError(t, os.Remove(moved))
	out, err = once(target)
	require.Error(t, err)
	require.Contains(t, out, "docstore-sync: cannot list "+source)
	require.Len(t, segments(t, target), 2)
}

// TestSyncScriptDelete: a segment that the source has deleted is deleted from the copy only
// with --delete.
func TestSyncScriptDelete(t *testing.T) {
	t.Parallel()
	documents := corpus(t)[:300]
	source, target := t.TempDir(), t.TempDir()
	first := sealSegment(t, source, documents[:100])
	sealSegment(t, source, documents[100:200])
	once := func(options ...string) {
		t.Helper()
		out, err := exec.Command(syncScript, append(options, "--once", source, target)...).CombinedOutput()
		require.NoError(t, err, string(out))
		require.Empty(t, string(out))
	}
	once()
	require.Len(t, segments(t, target), 2)
	require.NoError(t, os.Remove(filepath.Join(source, first)))
	third := sealSegment(t, source, documents[200:])
	once()
	require.Len(t, segments(t, target), 3)
	once("--delete")
	require.Len(t, segments(t, target), 2)
	require.NoFileExists(t, filepath.Join(target, first))
	want, err := os.ReadFile(filepath.Join(source, third))
	require.NoError(t, err)
	got, err := os.ReadFile(filepath.Join(target, third))
	require.NoError(t, err)
	require.Equal(t, want, got)
}
