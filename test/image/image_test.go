// Package image tests the container image: scripts/image builds it, and runc runs it with a
// read-only root, without privileges and with a memory limit.
package image

import (
	"bytes"
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const memoryLimit = 256 << 20

// unpacked is an image on disk.
type unpacked struct {
	root   string // of the file system
	config struct {
		Config struct {
			User        string
			Env         []string
			Entrypoint  []string
			Labels      map[string]string
			Healthcheck struct{ Test []string }

			ExposedPorts map[string]struct{}
		} `json:"config"`
	}
}

// build builds the image and unpacks it.
func build(t *testing.T) (archive string, u unpacked) {
	archive = filepath.Join(t.TempDir(), "image.tar.gz")
	command(t, "../../scripts/image", archive)
	dir := t.TempDir()
	command(t, "tar", "-xzf", archive, "-C", dir)
	var manifest []struct {
		Config string
		Layers []string
	}
	readJSON(t, filepath.Join(dir, "manifest.json"), &manifest)
	require.Len(t, manifest, 1)
	require.Len(t, manifest[0].Layers, 1)
	readJSON(t, filepath.Join(dir, manifest[0].Config), &u.config)
	u.root = t.TempDir()
	command(t, "tar", "-xf", filepath.Join(dir, manifest[0].Layers[0]), "-C", u.root)
	return archive, u
}

func command(t *testing.T, name string, args ...string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput()
	require.NoError(t, err, string(out))
}

func readJSON(t *testing.T, path string, to any) {
	t.Helper()
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(content, to))
}

// container is a container of the image that was not started.
type container struct {
	*exec.Cmd
	id     string
	output bytes.Buffer
}

// container prepares a container. It has the volumes /queue and /data, and the network of
// this machine.
func (u *unpacked) container(t *testing.T, queue, data string, args ...string) *container {
	bundle := t.TempDir()
	mounts := []any{map[string]any{"destination": "/proc", "type": "proc", "source": "proc"}, map[string]any{"destination": "/sys/fs/cgroup", "type": "cgroup", "source": "cgroup", "options": []string{"ro"}}}
	for destination, source := range map[string]string{"/queue": queue, "/data": data} {
		mounts = append(mounts, map[string]any{"destination": destination, "type": "bind", "source": source, "options": []string{"bind", "rw"}})
	}
	spec, err := json.Marshal(map[string]any{
		"ociVersion": "1.0.2",
		"root":       map[string]any{"path": u.root, "readonly": true},
		"process": map[string]any{
			"cwd": "/", "args": args, "env": u.config.Config.Env, "noNewPrivileges": true,
			"user": map[string]int{"uid": 65532, "gid": 65532},
		},
		"mounts": mounts,
		"linux": map[string]any{
			"resources":  map[string]any{"memory": map[string]int{"limit": memoryLimit}},
			"namespaces": []map[string]string{{"type": "pid"}, {"type": "mount"}, {"type": "ipc"}, {"type": "uts"}},
		},
	})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(bundle, "config.json"), spec, 0o600))
	c := &container{id: "docstore-" + filepath.Base(filepath.Dir(bundle)) + "-" + filepath.Base(bundle)}
	c.Cmd = exec.CommandContext(t.Context(), "runc", "run", "--bundle", bundle, c.id)
	c.Stdout, c.Stderr = &c.output, &c.output
	// runc passes signals to the process of the container.
	c.Cancel = func() error { return c.Process.Signal(syscall.SIGTERM) }
	return c
}

// run runs the container to its end.
func (c *container) run(t *testing.T) string {
	t.Helper()
	require.NoError(t, c.Run(), c.output.String())
	return c.output.String()
}

// directories returns a queue and a data directory that the image's user owns.
func directories(t *testing.T) (queue, data string) {
	queue, data = t.TempDir(), t.TempDir()
	for _, dir := range []string{queue, data} {
		require.NoError(t, os.Chown(dir, 65532, 65532))
		// The parents are made by the testing package for its user only.
		for parent := dir; strings.HasPrefix(parent, os.TempDir()+"/"); parent = filepath.Dir(parent) {
			require.NoError(t, os.Chmod(parent, 0o755))
		}
	}
	return queue, data
}

// TestImage appends, serves and stops in containers.
func TestImage(t *testing.T) {
	archive, image := build(t)
	t.Run("configuration", func(t *testing.T) {
		config := image.config.Config
		require.Equal(t, "65532:65532", config.User)
		require.Equal(t, []string{"/usr/bin/docserviced"}, config.Entrypoint)
		require.Equal(t, []string{"CMD", "/usr/bin/docserviced", "health"}, config.Healthcheck.Test)
		require.Contains(t, config.ExposedPorts, "7070/tcp")
		require.Contains(t, config.ExposedPorts, "7071/tcp")
		require.FileExists(t, filepath.Join(image.root, "NOTICES"))
		require.Equal(t, "MIT", config.Labels["org.opencontainers.image.licenses"])
		require.NotEmpty(t, config.Labels["org.opencontainers.image.revision"])
	})
	t.Run("reproducible", func(t *testing.T) {
		again := filepath.Join(t.TempDir(), "image.tar.gz")
		command(t, "../../scripts/image", again)
		command(t, "cmp", archive, again)
	})
	t.Run("guide", func(t *testing.T) { // with the commands of the image
		guide := exec.CommandContext(t.Context(), "go", "test", "-count", "1", "-run", "TestGuides/sharding.md", "../guides")
		guide.Env = append(os.Environ(), "DOCSTORE_GUIDE_COMMANDS="+filepath.Join(image.root, "usr", "bin"))
		out, err := guide.CombinedOutput()
		require.NoError(t, err, string(out))
	})
	queue, data := directories(t)
	updater := func(t *testing.T, args ...string) *container {
		return image.container(t, queue, data, append([]string{"/usr/bin/docstore-updater"}, args...)...)
	}
	t.Run("no lzo", func(t *testing.T) {
		c := updater(t, "append", "--queue", "/queue/other", "--codec", "lzo")
		require.Error(t, c.Run())
		require.Contains(t, c.output.String(), "--codec lzo: this build has")
	})
	t.Run("memory of the container", func(t *testing.T) {
		c := image.container(t, queue, data, "/usr/bin/docserviced", "config", "--collection", "jobs=/queue/jobs", "--explain")
		require.Regexp(t, `(?m)^memory +42\.7 MiB  1/6 of 256 MiB \(/sys/fs/cgroup/`, c.run(t))
	})
	t.Run("append and serve", func(t *testing.T) {
		in := updater(t, "append", "--queue", "/queue/jobs")
		in.Stdin = strings.NewReader(`{"id": "1", "title": "engineer"}` + "\n")
		in.run(t)

		boxcar, http := freeAddress(t), freeAddress(t)
		daemon := image.container(t, queue, data, "/usr/bin/docserviced", "serve", "--collection", "jobs=/queue/jobs", "--boxcar", boxcar, "--http", http)
		require.NoError(t, daemon.Start())
		require.Eventually(t, func() bool {
			return image.container(t, queue, data, "/usr/bin/docserviced", "health", "--ready", "--http", http).Run() == nil
		}, time.Minute, 200*time.Millisecond)
		get := image.container(t, queue, data, "/usr/bin/boxcar", "get", "--servers", boxcar, "--collection", "jobs", "1")
		require.Contains(t, get.run(t), "engineer")

		require.NoError(t, daemon.Process.Signal(syscall.SIGTERM))
		require.NoError(t, daemon.Wait(), "the daemon ends with status 0: %s", &daemon.output)
	})
}

// freeAddress returns an address of loopback that was free a moment ago.
func freeAddress(t *testing.T) string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	return listener.Addr().String()
}
