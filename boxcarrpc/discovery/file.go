package discovery

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"strconv"
	"strings"
	"time"
)

// Limits and intervals of File.
const (
	// filePollInterval is the interval at which a watched file is checked.
	filePollInterval = time.Second
	// fileSettleTime is the minimum age of a file whose modification time identifies
	// its contents: the resolution of file systems is limited.
	fileSettleTime = 2 * time.Second
	// MaxFileBytes is the maximum size of a file for File.
	MaxFileBytes = 64 << 20
)

// File returns a source with the servers in a file, one per line:
//
//	# address [number=N] [weight=W] [zone=Z]
//	be-0.search:7070
//	be-1.search:7070 weight=2 zone=eu-1a
//	be-7.search:7070 number=7
//
// A server without a number has the index of its line among the server lines, from 0.
// Blank lines and comments after # are ignored. The file is checked every second. Write
// a new file and rename it over the old one, so that a partial file is never read. If
// the file cannot be read or parsed, Watch returns an error with the line number, and
// the pool keeps the last set.
func File(path string) Source { return file(path) }

type file string

// Watch reports the set when the file has changed.
func (f file) Watch(ctx context.Context, update func(Snapshot)) error {
	ticker := time.NewTicker(filePollInterval)
	defer ticker.Stop()
	var seen os.FileInfo // nil if it does not identify the contents
	var last Snapshot
	for first := true; ; first = false {
		now, err := os.Stat(string(f))
		if err != nil {
			return fmt.Errorf("discovery: %w", err)
		}
		if first || seen == nil || changed(seen, now) {
			snapshot, err := f.read()
			if err != nil {
				return fmt.Errorf("discovery: %w", err)
			}
			if first || !last.Equal(snapshot) {
				last = snapshot
				update(snapshot)
			}
			seen = now
			if time.Since(now.ModTime()) < fileSettleTime {
				seen = nil
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
	}
}

func changed(before, after os.FileInfo) bool {
	return !os.SameFile(before, after) || before.Size() != after.Size() || !before.ModTime().Equal(after.ModTime())
}

func (f file) read() (Snapshot, error) {
	in, err := os.Open(string(f))
	if err != nil {
		return Snapshot{}, err
	}
	defer func() { _ = in.Close() }() // read-only
	limited := &io.LimitedReader{R: in, N: MaxFileBytes + 1}
	snapshot, err := Parse(limited)
	if err == nil && limited.N == 0 {
		err = fmt.Errorf("the file has over %d bytes", MaxFileBytes)
	}
	if err != nil {
		return Snapshot{}, fmt.Errorf("%s: %w", string(f), err)
	}
	return snapshot, nil
}

// Parse reads the servers of a file as of File.
func Parse(in io.Reader) (Snapshot, error) {
	s := Snapshot{Self: -1}
	var taken map[int]bool // nil while all numbers are the indexes of the lines
	zones := map[string]string{}
	lines := bufio.NewScanner(in)
	for n := 1; lines.Scan(); n++ {
		text, _, _ := bytes.Cut(lines.Bytes(), []byte("#"))
		server, err := parseServer(text, len(s.Servers))
		if server.Address == "" && err == nil {
			continue
		}
		if taken == nil && server.Number != len(s.Servers) {
			taken = map[int]bool{}
			for _, earlier := range s.Servers {
				taken[earlier.Number] = true
			}
		}
		if err == nil && taken[server.Number] {
			err = fmt.Errorf("number %d: another server has the same number", server.Number)
		}
		if err != nil {
			return Snapshot{}, fmt.Errorf("line %d: %w", n, err)
		}
		if taken != nil {
			taken[server.Number] = true
		}
		if server.Zone != "" { // a million servers share the names of a few zones
			if known, ok := zones[server.Zone]; ok {
				server.Zone = known
			} else {
				zones[server.Zone] = server.Zone
			}
		}
		s.Servers = append(s.Servers, server)
		s.Numbers = max(s.Numbers, server.Number+1)
	}
	return s, lines.Err()
}

// parseServer parses a line. The server has no address if the line is empty.
func parseServer(line []byte, number int) (server Server, err error) {
	server.Number = number
	for field := range bytes.FieldsSeq(line) {
		if server.Address == "" {
			server.Address = string(field)
			if err := CheckAddress(server.Address); err != nil {
				return Server{}, err
			}
			continue
		}
		name, value, _ := strings.Cut(string(field), "=")
		switch name {
		case "number":
			server.Number, err = strconv.Atoi(value)
			if err == nil && (server.Number < 0 || server.Number > MaxNumber) {
				err = fmt.Errorf("must be from 0 to %d", MaxNumber)
			}
		case "weight":
			server.Weight, err = strconv.ParseFloat(value, 64)
			if err == nil && !(server.Weight > 0 && server.Weight < math.Inf(1)) {
				err = fmt.Errorf("must be above 0")
			}
		case "zone":
			server.Zone, err = value, CheckZone(value)
		default:
			err = fmt.Errorf("only number=N, weight=W and zone=Z may follow an address")
		}
		if err != nil {
			return Server{}, fmt.Errorf("%s: %w", field, err)
		}
	}
	return server, nil
}
