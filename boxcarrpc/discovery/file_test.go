package discovery

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/internal/virtualtime"
)

func TestParse(t *testing.T) {
	got, err := Parse(strings.NewReader("# ours\n a:1 \n\nb:1 weight=2.5 # twice as large\nc:1 number=7 weight=1 zone=eu-1a\nd:1 zone=\n"))
	require.NoError(t, err)
	require.Equal(t, Snapshot{
		Servers: []Server{{0, "a:1", 0, ""}, {1, "b:1", 2.5, ""}, {7, "c:1", 1, "eu-1a"}, {3, "d:1", 0, ""}},
		Numbers: 8, Self: -1,
	}, got)
}

func TestParseBadLines(t *testing.T) {
	for text, want := range map[string]string{
		"a:1\nb:1 up":                         "line 2: up: only number=N, weight=W and zone=Z may follow an address",
		"a:1\nlocalhost":                      "line 2: address localhost has no port; write HOST:PORT, such as localhost:7070",
		"a:1 number=x":                        `line 1: number=x: strconv.Atoi: parsing "x": invalid syntax`,
		"a:1 number=-1":                       "line 1: number=-1: must be from 0 to 1048575",
		"a:1 number=2147483647":               "line 1: number=2147483647: must be from 0 to 1048575",
		"a:1 weight=0":                        "line 1: weight=0: must be above 0",
		"a:1 zone=a/b":                        `line 1: zone=a/b: zone "a/b": use only letters, digits, dots, hyphens and underscores`,
		"a:1 zone=" + strings.Repeat("z", 65): "line 1: zone=" + strings.Repeat("z", 65) + ": zone of 65 bytes: must have at most 64",
		"a:1 weight=NaN":                      "line 1: weight=NaN: must be above 0",
		"a:1 weight=+Inf":                     "line 1: weight=+Inf: must be above 0",
		"a:1 weight=heavy":                    `line 1: weight=heavy: strconv.ParseFloat: parsing "heavy": invalid syntax`,
		"a:1\nb:1 number=0":                   "line 2: number 0: another server has the same number",
		strings.Repeat("x", 1<<17):            "bufio.Scanner: token too long",
	} {
		_, err := Parse(strings.NewReader(text))
		require.EqualError(t, err, want)
	}
}

// TestFile rewrites a file, also without a change of its size or modification time.
func TestFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "servers")
	write := func(text string) { require.NoError(t, os.WriteFile(path, []byte(text), 0o600)) }
	write("a:1\n")
	virtualtime.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var got []string
		ended := make(chan error)
		go func() {
			ended <- File(path).Watch(ctx, func(s Snapshot) {
				text := ""
				for _, server := range s.Servers {
					text += server.Address + " "
				}
				got = append(got, text)
			})
		}()
		settle := func() {
			time.Sleep(2 * filePollInterval)
			synctest.Wait()
		}
		settle()
		write("b:1\n") // same size, possibly same modification time
		settle()
		write("b:1 \n") // same servers
		settle()
		write("b:1\nc:1\n")
		require.NoError(t, os.WriteFile(path+".new", []byte("b:1\nd:1\n"), 0o600))
		require.NoError(t, os.Rename(path+".new", path))
		settle()
		require.Equal(t, []string{"a:1 ", "b:1 ", "b:1 d:1 "}, got)

		write("b:1 up\n")
		require.EqualError(t, <-ended, "discovery: "+path+": line 1: up: only number=N, weight=W and zone=Z may follow an address")
		require.NoError(t, os.Remove(path))
		require.ErrorIs(t, File(path).Watch(ctx, nil), os.ErrNotExist)

		write("")
		go func() { ended <- File(path).Watch(ctx, func(s Snapshot) { require.Empty(t, s.Servers) }) }()
		settle()
		cancel()
		require.ErrorIs(t, <-ended, context.Canceled)
	})
}

func TestLargeFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "servers")
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	require.NoError(t, os.Truncate(path, MaxFileBytes+1))
	require.Error(t, File(path).Watch(t.Context(), nil))
	line := "#" + strings.Repeat("x", 1023-1) + "\n"
	require.NoError(t, os.WriteFile(path, []byte(strings.Repeat(line, MaxFileBytes/1024)+"#"), 0o600))
	require.EqualError(t, File(path).Watch(t.Context(), nil), "discovery: "+path+": the file has over 67108864 bytes")
}
