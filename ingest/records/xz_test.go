package records

import (
	"bufio"
	"bytes"
	"io"
	"os/exec"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"
	"github.com/ulikunitz/xz"

	"docstore/internal/testprogram"
	"docstore/internal/testseed"
)

// xzed compresses with the library's encoder.
func xzed(t testing.TB, text string, config xz.WriterConfig) string {
	t.Helper()
	var b bytes.Buffer
	w, err := config.NewWriter(&b)
	require.NoError(t, err)
	_, err = io.WriteString(w, text)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return b.String()
}

func unxz(file string) (string, error) {
	x, err := newXzReader(bufio.NewReader(iotest.HalfReader(strings.NewReader(file))))
	if err != nil {
		return "", err
	}
	text, err := io.ReadAll(x)
	return string(text), err
}

func TestXz(t *testing.T) {
	random := testseed.Rand(t)
	for range 30 {
		want := strings.Repeat("docstore", random.IntN(1000)) + string(make([]byte, random.IntN(5000)))
		config := xz.WriterConfig{CheckSum: []byte{xz.CRC32, xz.CRC64, xz.SHA256, 0}[random.IntN(4)], BlockSize: int64(1 + random.IntN(10_000))}
		config.NoCheckSum = config.CheckSum == 0
		file := xzed(t, want, config) + string(make([]byte, 4*random.IntN(3))) + xzed(t, "second", xz.WriterConfig{})
		got, err := unxz(file)
		require.NoError(t, err)
		require.Equal(t, want+"second", got)
		cut := random.IntN(len(file) - 1)
		if text, err := unxz(file[:cut]); err == nil {
			require.Equal(t, want, text, "cut behind the first stream")
		}
	}
}

// TestXzOfTheTool reads files of xz with several blocks.
func TestXzOfTheTool(t *testing.T) {
	tool := testprogram.Path(t, "xz")
	want := strings.Repeat(`{"id":"1"}`+"\n", 50_000)
	for _, args := range [][]string{{"-1"}, {"-9e", "-T2", "--block-size=100000"}, {"--check=sha256"}, {"--check=none"}} {
		command := exec.Command(tool, append(args, "-c")...)
		command.Stdin = strings.NewReader(want)
		file, err := command.Output()
		require.NoError(t, err)
		require.True(t, IsCompressed(file))
		s, err := Open(bytes.NewReader(file), "in.xz", FormatAuto, testLimit, nil)
		require.NoError(t, err)
		require.Len(t, readAll(t, s), 50_000, args)
	}
}

// TestXzErrorsOfTheTool: an unsupported filter and a large dictionary are named, also in a second
// stream.
func TestXzErrorsOfTheTool(t *testing.T) {
	tool := testprogram.Path(t, "xz")
	for want, args := range map[string][]string{
		"xz: a block has other filters than LZMA2": {"--x86", "--lzma2"},
		"xz: a block needs a dictionary of 134217728 bytes, more than the limit of 67108864; compress with xz -9 or less": {"--lzma2=dict=128MiB"},
	} {
		command := exec.Command(tool, append(args, "-c")...)
		command.Stdin = strings.NewReader("second\n")
		file, err := command.Output()
		require.NoError(t, err)
		require.EqualError(t, readToEnd(string(file)), want)
		require.EqualError(t, readToEnd(xzed(t, "first\n", xz.WriterConfig{})+string(file)), want)
	}
}

// TestXzCutInASecondStream: any number of bytes behind a stream is a whole stream, or an error.
func TestXzCutInASecondStream(t *testing.T) {
	first, second := xzed(t, "first\n", xz.WriterConfig{}), xzed(t, "second\nthird\n", xz.WriterConfig{BlockSize: 8})
	for cut := 1; cut < len(second); cut++ {
		require.Error(t, readToEnd(first+second[:cut]), "cut to %d of %d bytes", cut, len(second))
	}
	require.NoError(t, readToEnd(first+second))
}

func TestDamagedXz(t *testing.T) {
	want := strings.Repeat("docstore", 100)
	file := xzed(t, want, xz.WriterConfig{})
	for i := range file {
		damaged := []byte(file)
		damaged[i] ^= 1
		if text, err := unxz(string(damaged)); err == nil {
			require.Equal(t, want, text, "byte %d: an error, or the right text", i)
		}
	}
	_, err := unxz(file + "more")
	require.Error(t, err)
	_, err = unxz(xzed(t, "a", xz.WriterConfig{DictCap: 128 << 20}))
	require.EqualError(t, err, "xz: a block needs a dictionary of 134217728 bytes, more than the limit of 67108864; compress with xz -9 or less")
}

func FuzzXz(f *testing.F) {
	f.Add([]byte(xzed(f, "docstore", xz.WriterConfig{})))
	f.Fuzz(func(t *testing.T, file []byte) {
		x, err := newXzReader(bufio.NewReader(bytes.NewReader(file)))
		if err != nil {
			return
		}
		_, _ = io.CopyN(io.Discard, x, 1<<20)
	})
}
