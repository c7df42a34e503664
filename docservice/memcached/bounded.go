package memcached

import (
	"bytes"
	"context"
	"errors"
	"net"
	"strconv"
)

// Limits on the responses of a server. The client library trusts the announced length of a
// value: it allocates gigabytes before the first byte arrives.
const (
	// maxReplyBytes limits the response to one command: twice the size of a batch.
	maxReplyBytes = 16 << 20
	// maxLineBytes fits a key of 250 bytes and some numbers, or an error.
	maxLineBytes = 2 << 10
)

var errReply = errors.New("memcached: the server's response exceeds the limits")

// dialBounded returns dial with connections whose reads fail if a response exceeds the limits,
// before the client library sees the offending line.
func dialBounded(dial DialFunc) DialFunc {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &boundedConn{Conn: conn}, nil
	}
}

// boundedConn parses the responses of memcached's text protocol as they are read: lines, of
// which one that begins with VALUE announces the length of the bytes that follow.
type boundedConn struct {
	net.Conn
	reply int64  // bytes since the last command
	line  []byte // of the current line
	value int64  // bytes of a value not read yet
}

func (c *boundedConn) Write(b []byte) (int, error) {
	c.reply = 0
	return c.Conn.Write(b)
}

func (c *boundedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.reply += int64(n); c.reply > maxReplyBytes || !c.follow(b[:n]) {
		return 0, errReply
	}
	return n, err
}

// follow parses received bytes, and reports whether they are within the limits.
func (c *boundedConn) follow(b []byte) bool {
	for len(b) > 0 {
		if c.value > 0 {
			skipped := min(c.value, int64(len(b)))
			c.value -= skipped
			b = b[skipped:]
			continue
		}
		end := bytes.IndexByte(b, '\n') + 1
		part := b
		if end > 0 {
			part = b[:end]
		}
		if len(c.line)+len(part) > maxLineBytes {
			return false
		}
		c.line = append(c.line, part...)
		b = b[len(part):]
		if end == 0 {
			continue
		}
		fields := bytes.Fields(c.line)
		if len(fields) > 0 && string(fields[0]) == "VALUE" {
			if len(fields) < 4 {
				return false
			}
			size, err := strconv.ParseUint(string(fields[3]), 10, 32)
			if err != nil || size > MaxItemBytes {
				return false
			}
			c.value = int64(size) + 2 // and the end of its line
		}
		c.line = c.line[:0]
	}
	return true
}
