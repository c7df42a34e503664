package wal

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/cockroachdb/errors"
	"github.com/stretchr/testify/require"
)

// BenchmarkAppend appends to consecutive logs of 64 MiB on the operating system's file
// system.
func BenchmarkAppend(b *testing.B) {
	for _, payloadBytes := range []int{100, 1000, 100_000} {
		b.Run(fmt.Sprintf("payload=%d", payloadBytes), func(b *testing.B) {
			dir := b.TempDir()
			key, value := make([]byte, 8), make([]byte, payloadBytes-8)
			logs, sequence := 0, uint64(0)
			open := func() *Writer {
				logs++
				w, err := Create(filepath.Join(dir, fmt.Sprintf("%d.wal", logs)), uint64(logs), nil)
				require.NoError(b, err)
				return w
			}
			w := open()
			b.ReportAllocs()
			b.SetBytes(int64(payloadBytes))
			for b.Loop() {
				sequence++
				err := w.Append(sequence, key, value)
				if errors.Is(err, ErrFull) {
					require.NoError(b, w.Close())
					w = open()
					err = w.Append(sequence, key, value)
				}
				if err != nil {
					b.Fatal(err)
				}
			}
			require.NoError(b, w.Close())
			result, err := Replay(filepath.Join(dir, fmt.Sprintf("%d.wal", logs)), nil,
				func(uint64, []byte) error { return nil })
			require.NoError(b, err)
			require.Equal(b, sequence, result.Last)
		})
	}
}

// BenchmarkReplay reads a log of 16 MiB.
func BenchmarkReplay(b *testing.B) {
	name := filepath.Join(b.TempDir(), "1.wal")
	w, err := Create(name, 1, &Options{Capacity: 16 << 20})
	require.NoError(b, err)
	records, payload := 0, make([]byte, 100)
	for w.Append(uint64(records+1), payload) == nil {
		records++
	}
	require.NoError(b, w.Close())
	b.ReportAllocs()
	b.SetBytes(w.Size())
	for b.Loop() {
		result, err := Replay(name, nil, func(uint64, []byte) error { return nil })
		if err != nil || result.Records != records {
			b.Fatal(result, err)
		}
	}
}
