package machine

import (
	"os"
	"runtime"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
)

func TestMemory(t *testing.T) {
	const (
		meminfoText = "MemTotal:       24642384 kB\nMemFree:        23068228 kB\n"
		total       = 24642384 << 10
	)
	for _, test := range []struct {
		name  string
		files map[string]string
		want  Memory
	}{
		{"no groups", map[string]string{}, Memory{total, false, "/proc/meminfo"}},
		{"version 2", map[string]string{
			"proc/self/cgroup": "0::/pod/app\n", "sys/fs/cgroup/pod/app/memory.max": "536870912\n", "sys/fs/cgroup/pod/memory.max": "max\n",
		}, Memory{512 << 20, true, "/sys/fs/cgroup/pod/app/memory.max"}},
		{"a parent's limit is lower", map[string]string{
			"proc/self/cgroup": "0::/pod/app\n", "sys/fs/cgroup/pod/app/memory.max": "536870912\n", "sys/fs/cgroup/pod/memory.max": "268435456\n",
		}, Memory{256 << 20, true, "/sys/fs/cgroup/pod/memory.max"}},
		{"the container's group is the root", map[string]string{
			"proc/self/cgroup": "0::/kubepods/pod7\n", "sys/fs/cgroup/memory.max": "1073741824\n",
		}, Memory{1 << 30, true, "/sys/fs/cgroup/memory.max"}},
		{"version 1", map[string]string{
			"proc/self/cgroup":                               "9:name=systemd:/\n4:memory:/app\n2:cpuacct,cpu:/\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes":     "9223372036854771712\n",
			"sys/fs/cgroup/memory/app/memory.limit_in_bytes": "67108864\n",
		}, Memory{64 << 20, true, "/sys/fs/cgroup/memory/app/memory.limit_in_bytes"}},
		{"a limit above the machine's memory", map[string]string{
			"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "99999999999999\n",
		}, Memory{total, false, "/proc/meminfo"}},
		{"damaged lines", map[string]string{"proc/self/cgroup": "0:\nx\n0::/../..\n", "sys/fs/cgroup/memory.max": "many\n"}, Memory{total, false, "/proc/meminfo"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			root := fstest.MapFS{"proc/meminfo": {Data: []byte(meminfoText)}}
			for name, text := range test.files {
				root[name] = &fstest.MapFile{Data: []byte(text)}
			}
			got, err := ReadMemory(root)
			require.NoError(t, err)
			require.Equal(t, test.want, got)
		})
	}
	_, err := ReadMemory(fstest.MapFS{})
	require.Error(t, err)
	_, err = ReadMemory(fstest.MapFS{"proc/meminfo": {Data: []byte("MemTotal: many kB\n")}})
	require.ErrorContains(t, err, "no line MemTotal")
}

func TestMemoryOfThisMachine(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux has /proc")
	}
	memory, err := ReadMemory(os.DirFS("/"))
	require.NoError(t, err)
	require.Greater(t, memory.Bytes, int64(16<<20))
}
