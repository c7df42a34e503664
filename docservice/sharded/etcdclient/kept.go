package etcdclient

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	"docstore/boxcarrpc/discovery"
	"docstore/internal/checksum"
	"docstore/internal/vfs"
)

// etcdWait is the time for which a program with Options.Dir waits for etcd before it uses the
// files.
const etcdWait = 500 * time.Millisecond

// mapFile returns the file of the last placement.
func mapFile(dir string) string { return filepath.Join(dir, "placement.json") }

// serversFile returns the file of the last servers of a column, a list as of discovery.File.
func serversFile(dir, column string) string { return filepath.Join(dir, "servers-"+column) }

// kept is the source of the servers of a column, with a file of the last ones. It reports them
// if the source has reported none for etcdWait.
type kept struct {
	source discovery.Source
	fs     vfs.FS
	file   string
	log    *slog.Logger

	mu struct {
		sync.Mutex
		reported bool // by the source or from the file
	}
}

// Watch implements discovery.Source.
func (k *kept) Watch(ctx context.Context, update func(discovery.Snapshot)) error {
	watching, stop := context.WithCancel(ctx)
	defer stop()
	late := time.AfterFunc(etcdWait, func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		if watching.Err() != nil {
			return // Watch has returned
		}
		if last, ok := k.last(); ok {
			update(last)
		}
	})
	defer late.Stop()
	err := k.source.Watch(ctx, func(s discovery.Snapshot) {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.mu.reported = true
		update(s)
		k.keep(s)
	})
	k.mu.Lock()
	defer k.mu.Unlock() // the timer does nothing after Watch has returned
	stop()
	return err
}

// last returns the servers of the file unless servers have been reported. k.mu is locked.
func (k *kept) last() (last discovery.Snapshot, ok bool) {
	if k.mu.reported {
		return last, false
	}
	info, err := k.fs.Stat(k.file)
	var content []byte
	if err == nil {
		content, err = vfs.ReadFile(k.fs, k.file)
	}
	if err == nil {
		last, err = serversOf(content)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return last, false
	case err != nil:
		k.log.Warn("the last servers of a column cannot be read; waiting for etcd", "error", err)
		return last, false
	}
	k.mu.reported = true
	k.log.Warn("etcd does not answer; using the last servers of a column", "file", k.file, "servers", len(last.Servers), "changed", info.ModTime)
	return last, true
}

// sumLine is the last line of a file, a comment of the list: the CRC-32C of the lines before it. If a
// flipped bit changed an address, calls would go to a server that does not exist.
const sumLine = "# CRC-32C %08x\n"

// serversOf returns the servers of a file. The files of earlier builds have no checksum.
func serversOf(content []byte) (discovery.Snapshot, error) {
	at := max(0, len(content)-len(fmt.Sprintf(sumLine, 0)))
	if bytes.HasPrefix(content[at:], []byte("# CRC-32C ")) && string(content[at:]) != fmt.Sprintf(sumLine, checksum.Of(content[:at])) {
		return discovery.Snapshot{}, errors.New("the checksum is wrong")
	}
	return discovery.Parse(bytes.NewReader(content))
}

// keep writes the servers to the file. A column has none while etcd has lost its leases, too:
// the last ones are kept then. k.mu is locked.
func (k *kept) keep(s discovery.Snapshot) {
	if len(s.Servers) == 0 {
		return
	}
	content := []byte("# The last servers in etcd. This file is replaced when they change.\n")
	for _, server := range s.Servers {
		content = fmt.Appendf(content, "%s number=%d", server.Address, server.Number)
		if server.Weight != 0 {
			content = fmt.Appendf(content, " weight=%g", server.Weight)
		}
		if server.Zone != "" {
			content = fmt.Appendf(content, " zone=%s", server.Zone)
		}
		content = append(content, '\n')
	}
	content = fmt.Appendf(content, sumLine, checksum.Of(content))
	if err := vfs.WriteFileShared(k.fs, k.file, content); err != nil {
		k.log.Warn("the servers of a column are not kept for a start without etcd", "error", err)
	}
}
