//go:build linux

package e2e

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"docstore/internal/testprocess"
)

// playbooksFile has a section for each alert. Its blocks with the kind playbookBlock are commands
// for the operator.
const (
	playbooksFile = "../../docs/alerts.md"
	playbookBlock = "```sh needs: this alert\n"
)

// playbook returns the commands of an alert's section, in their order.
func playbook(t testing.TB, alert string) (commands []string) {
	t.Helper()
	content, err := os.ReadFile(playbooksFile)
	require.NoError(t, err)
	_, section, found := strings.Cut(string(content), "\n## "+alert+"\n")
	require.True(t, found, alert)
	section, _, _ = strings.Cut(section, "\n## ")
	for _, block := range strings.Split(section, playbookBlock)[1:] {
		text, _, closed := strings.Cut(block, "\n```\n")
		require.True(t, closed, alert)
		commands = append(commands, text)
	}
	return commands
}

// request is a call of systemctl or journalctl by a playbook, for the service of a host.
type request struct {
	program string
	args    []string
	host    string // HTTP address of its daemon
	answer  chan string
}

// operator follows playbooks. On its path systemctl and journalctl are programs that pass their
// arguments to do, because tests have no systemd.
type operator struct {
	t        testing.TB
	do       func(request) string
	dir      string // of systemctl and journalctl
	server   *httptest.Server
	requests chan request
}

func newOperator(t testing.TB, do func(request) string) *operator {
	t.Helper()
	o := &operator{t: t, do: do, dir: t.TempDir(), requests: make(chan request)}
	o.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q := request{program: r.FormValue("program"), args: strings.Fields(r.FormValue("args")), host: r.FormValue("host"), answer: make(chan string, 1)}
		select {
		case o.requests <- q:
			fmt.Fprintln(w, <-q.answer)
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(o.server.Close)
	for _, program := range []string{"systemctl", "journalctl"} {
		script := "#!/bin/sh\nexec curl -sS " + o.server.URL + " -d program=" + program + " --data-urlencode \"args=$*\" -d \"host=$HTTP\"\n"
		require.NoError(t, os.WriteFile(filepath.Join(o.dir, program), []byte(script), 0o700))
	}
	return o
}

// follow runs the commands of an alert's playbook with variables of the environment, and returns
// them with their output. Each block must succeed.
func (o *operator) follow(alert string, variables map[string]string) string {
	o.t.Helper()
	commands := playbook(o.t, alert)
	require.NotEmpty(o.t, commands, "%s has no commands in docs/alerts.md", alert)
	var all strings.Builder
	for _, text := range commands {
		command := exec.Command("bash", "-c", text)
		command.Env = append(os.Environ(), "PATH="+o.dir+":"+binaries+":"+os.Getenv("PATH"))
		for name, value := range variables {
			command.Env = append(command.Env, name+"="+value)
		}
		process := testprocess.Start(o.t, command)
		for running := true; running; {
			select {
			case q := <-o.requests:
				q.answer <- o.do(q)
			case <-process.Exited:
				running = false
			}
		}
		output := process.Output.String()
		assert.Zero(o.t, process.ProcessState.ExitCode(), "%s: %s\n%s", alert, text, output)
		fmt.Fprintf(&all, "%s\n%s", text, output)
	}
	return all.String()
}
