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

const (
	// filePollInterval is how often a watched file is looked at.
	filePollInterval = time.Second
	// fileSettleTime is how old a file must be before its time of change is
	// trusted to tell it from a later one: file systems count in ticks.
	fileSettleTime = 2 * time.Second
	// MaxFileBytes is the largest file that File reads.
	MaxFileBytes = 64 << 20
)

// File is the source of the servers that a file lists, one on a line:
//
//	# address [number=N] [weight=W]
//	be-0.search:7070
//	be-1.search:7070 weight=2
//	be-7.search:7070 number=7
//
// A server without a number has the place of its line among the servers, from
// 0. Blank lines and what follows a # are passed over. The file is looked at
// each second; write a new one and rename it over the old one, so that it is
// never seen half written. A file that cannot be read or understood ends Watch
// with an error that names the line, and the pool goes on with the last set.
func File(path string) Source { return file(path) }

type file string

// Watch reports the set when the file has changed.
func (f file) Watch(ctx context.Context, update func(Snapshot)) error {
	ticker := time.NewTicker(filePollInterval)
	defer ticker.Stop()
	var seen os.FileInfo // nil if it may have changed since without a sign
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
	defer func() { _ = in.Close() }() // it was only read
	limited := &io.LimitedReader{R: in, N: MaxFileBytes + 1}
	snapshot, err := parse(limited)
	if err == nil && limited.N == 0 {
		err = fmt.Errorf("the file has over %d bytes", MaxFileBytes)
	}
	if err != nil {
		return Snapshot{}, fmt.Errorf("%s: %w", string(f), err)
	}
	return snapshot, nil
}

// parse reads a list of servers.
func parse(in io.Reader) (Snapshot, error) {
	s := Snapshot{Self: -1}
	var taken map[int]bool // the numbers, from the first that is given on: places alone differ
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
			err = fmt.Errorf("there are two servers with the number %d", server.Number)
		}
		if err != nil {
			return Snapshot{}, fmt.Errorf("line %d: %w", n, err)
		}
		if taken != nil {
			taken[server.Number] = true
		}
		s.Servers = append(s.Servers, server)
		s.Numbers = max(s.Numbers, server.Number+1)
	}
	return s, lines.Err()
}

// parseServer reads an address and what is said of it. It has none if the line is empty.
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
				err = fmt.Errorf("it must be from 0 to %d", MaxNumber)
			}
		case "weight":
			server.Weight, err = strconv.ParseFloat(value, 64)
			if err == nil && !(server.Weight > 0 && server.Weight < math.Inf(1)) {
				err = fmt.Errorf("it must be over 0")
			}
		default:
			err = fmt.Errorf("only number=N and weight=W may follow an address")
		}
		if err != nil {
			return Server{}, fmt.Errorf("%s: %w", field, err)
		}
	}
	return server, nil
}
