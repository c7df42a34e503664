package meter

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/cmd/internal/cli"
)

// testEnv collects output and has a clock that tests move.
type testEnv struct {
	cli.Env
	err bytes.Buffer
	now time.Time
}

func newTestEnv() *testEnv {
	e := &testEnv{now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	e.Env = cli.Env{Stderr: &e.err, Now: func() time.Time { return e.now }}
	return e
}

func TestOnTerminal(t *testing.T) {
	env := newTestEnv()
	env.Terminal = true
	for _, test := range []struct {
		name                    string
		total, documents, bytes int64
		want                    string
	}{
		{"documents", 10 << 20, 1234, 5 << 20, `appending 1,234 documents, 5\.00 MiB / 10\.00 MiB \[-+>_+\] 50% 1,234/s 1s left`},
		{"bytes alone", 10 << 20, 0, 5 << 20, `appending 5\.00 MiB / 10\.00 MiB \[-+>_+\] 50% 5 MiB/s 1s left`},
		{"no total", 0, 1234, 5 << 20, `appending 1,234 documents, 5\.00 MiB 1,234/s 0s`},
	} {
		t.Run(test.name, func(t *testing.T) {
			env.err.Reset()
			m := New(&env.Env, "appending", test.total)
			env.now = env.now.Add(time.Second)
			m.Update(test.documents, test.bytes)
			m.Update(test.documents, test.bytes) // too soon for an update
			require.Regexp(t, "^\r"+test.want+` *$`, env.err.String())
			m.Finish()
			require.Equal(t, 2, strings.Count(env.err.String(), "\r"))
			require.True(t, strings.HasSuffix(env.err.String(), "\n"))
		})
	}
}

// Without a terminal nothing is drawn.
func TestOffTerminal(t *testing.T) {
	env := newTestEnv()
	m := New(&env.Env, "appending", 1000)
	require.Nil(t, m)
	m.SetTotal(2000)
	m.Update(1, 1)
	m.Finish()
	require.Empty(t, env.err.String())
}

// TestWork: the parts of a job add up.
func TestWork(t *testing.T) {
	env := newTestEnv()
	env.Terminal = true
	progress, finish := Work(&env.Env, "checking", false)
	for _, done := range []int64{512, 1024, 0, 1024} {
		progress(done, 1024)
	}
	finish()
	require.Contains(t, env.err.String(), "checking 2.00 KiB / 2.00 KiB ")

	env.err.Reset()
	progress, finish = Work(&env.Env, "checking", true)
	progress(1, 2)
	finish()
	require.Empty(t, env.err.String())
}
