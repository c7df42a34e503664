package docserviced

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"docstore/cmd/internal/cli"
	"docstore/cmd/internal/httpclient"
	"docstore/docservice/server"
	"docstore/internal/buildinfo"
)

const (
	// bundleTimeout is the timeout for each file from the daemon.
	bundleTimeout = 20 * time.Second
	journalLines  = "5000"
)

// bundleFlags are the flags of bundle.
type bundleFlags struct {
	address, output, dataDir, unit string
	access                         httpclient.Flags
}

func newBundle(env *cli.Env) *cobra.Command {
	var b bundleFlags
	command := &cobra.Command{
		Use:   "bundle",
		Short: "Collect diagnostics of a daemon in one file",
		Long: `Bundle collects diagnostics of a running daemon over HTTP: status, readiness,
metrics, settings, recent log, goroutine stacks and a heap profile. It adds the
journal of the systemd unit and facts about the machine, and writes one .tar.gz
for analysis elsewhere. It contains no documents, tokens, keys or passwords:
settings name the files of secrets, and passwords in URLs are removed.

If a part is unavailable, because the daemon is down or does not serve /debug,
bundle continues without it and names it in README.txt and on standard error. It
fails if it can collect only facts about the machine.`,
		Example: `  docserviced bundle
  docserviced bundle --data /var/lib/docstore/index --output /tmp/bundle.tar.gz
  docserviced bundle --http https://be-1:7071 --tls-ca ca.crt --token-file me.token`,
		Args:    cobra.NoArgs,
		PreRunE: func(*cobra.Command, []string) error { return b.access.Check(b.address) },
		RunE: func(command *cobra.Command, _ []string) error {
			return b.run(command.Context(), env)
		},
	}
	flags := command.Flags()
	flags.StringVar(&b.address, "http", server.DefaultHTTP, "the daemon's --http, as HOST:PORT or https://HOST:PORT")
	flags.StringVar(&b.output, "output", "", "file to write, which must not exist; empty: docserviced-HOST-TIME.tar.gz")
	flags.StringVar(&b.dataDir, "data", "", "the daemon's --data, to list its files; empty: do not list them")
	flags.StringVar(&b.unit, "unit", "docserviced", "systemd unit whose journal to include; empty: none")
	b.access.Add(flags)
	return command
}

// fromDaemon lists the files that are read from the daemon.
var fromDaemon = []struct{ file, path string }{
	{"status.json", "/api/v1/status"},
	{"readyz.json", "/readyz"},
	{"metrics.txt", "/metrics"},
	{"settings.txt", "/debug/settings"},
	{"log.txt", "/debug/log"},
	{"goroutines.txt", "/debug/pprof/goroutine?debug=2"},
	{"heap.pprof", "/debug/pprof/heap"},
}

func (b *bundleFlags) run(ctx context.Context, env *cli.Env) (err error) {
	now := env.Now().UTC()
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	if b.output == "" {
		b.output = fmt.Sprintf("docserviced-%s-%s.tar.gz", host, now.Format("20060102T150405Z"))
	}
	client, err := b.access.Open(bundleTimeout, env.Log)
	if err != nil {
		return err
	}
	defer client.Close()
	file, err := os.OpenFile(b.output, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	w := newBundleWriter(file, now)
	for _, f := range fromDaemon {
		content, err := client.Get(ctx, b.address, f.path)
		w.add(f.file, content, err)
	}
	if b.unit != "" {
		journal, err := exec.CommandContext(ctx, "journalctl", "--unit", b.unit, "--lines", journalLines, "--no-pager", "--output", "short-iso").Output()
		if err == nil && bytes.Contains(journal, noEntries) {
			err = errors.New("it has no entries")
		}
		w.add("journal.txt", journal, err)
	}
	if b.dataDir != "" {
		listing, err := listFiles(b.dataDir)
		w.add("files.txt", listing, err)
	}
	if w.collected == 0 {
		err := errors.Join(file.Close(), os.Remove(b.output))
		return errors.Join(fmt.Errorf("nothing was collected, for example %s; give the address of a daemon with --http, or its directory with --data", w.missing[0]), err)
	}
	w.add("machine.txt", describeMachine(), nil)
	missing := w.missing
	w.add("README.txt", fmt.Appendf(nil, "docserviced bundle of %s at %s, %s, made by docserviced %s\n\n%s", httpclient.URL(b.address), now.Format(time.RFC3339), host, buildinfo.Version(),
		strings.Join(append(w.missing, ""), "\n")), nil)
	if err := errors.Join(w.close(), file.Close()); err != nil {
		return errors.Join(err, os.Remove(b.output))
	}
	for _, what := range missing {
		env.Log.Warn("not in the bundle", "what", what)
	}
	_, err = fmt.Fprintln(env.Stdout, b.output)
	return err
}

// A bundleWriter writes the archive. It keeps the first error and the list of missing
// files.
type bundleWriter struct {
	gzip      *gzip.Writer
	tar       *tar.Writer
	now       time.Time
	missing   []string
	collected int // files
	err       error
}

// noEntries is the journal of an unknown unit.
var noEntries = []byte("-- No entries --")

func newBundleWriter(to io.Writer, now time.Time) *bundleWriter {
	zipped := gzip.NewWriter(to)
	return &bundleWriter{gzip: zipped, tar: tar.NewWriter(zipped), now: now}
}

// add adds a file, or records why it is missing.
func (w *bundleWriter) add(name string, content []byte, missing error) {
	if missing != nil {
		w.missing = append(w.missing, withoutPasswords(fmt.Sprintf("%s is missing: %v", name, missing)))
		return
	}
	w.collected++
	if filepath.Ext(name) != ".pprof" { // profiles are compressed
		content = []byte(withoutPasswords(string(content)))
	}
	if w.err == nil {
		w.err = w.tar.WriteHeader(&tar.Header{Name: "docserviced-bundle/" + name, Mode: 0o600, Size: int64(len(content)), ModTime: w.now})
	}
	if w.err == nil {
		_, w.err = w.tar.Write(content)
	}
}

func (w *bundleWriter) close() error {
	return errors.Join(w.err, w.tar.Close(), w.gzip.Close())
}

// listFiles lists names, sizes and times of the files below a directory.
func listFiles(dir string) (listing []byte, err error) {
	err = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err == nil {
			listing = fmt.Appendf(listing, "%s %12d %s %s\n", info.Mode(), info.Size(), info.ModTime().UTC().Format(time.RFC3339), path)
		}
		return nil // the file was just deleted
	})
	return listing, err
}

// describeMachine describes the machine, as far as Linux reports it, and this program.
func describeMachine() []byte {
	text := fmt.Appendf(nil, "%s/%s, %d processors\n", runtime.GOOS, runtime.GOARCH, runtime.NumCPU())
	for _, path := range []string{"/proc/version", "/proc/loadavg", "/proc/meminfo", "/proc/pressure/cpu", "/proc/pressure/io", "/proc/pressure/memory", "/proc/mounts", "/proc/sys/vm/max_map_count"} {
		if content, err := os.ReadFile(path); err == nil { // these exist only on Linux
			text = fmt.Appendf(text, "\n# %s\n%s", path, content)
		}
	}
	return text
}
