package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
)

// listen serves on a free port of this machine.
func listen(serve func(net.Listener) error) (address string, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	go func() { panic(serve(l)) }() // the server runs until the process ends
	return l.Addr().String(), nil
}

// The echo is the lower bound for a TCP connection per caller: a length and the bytes, without
// deadlines and cancellation.

func serveEcho(*tls.Config) (string, error) {
	return listen(func(l net.Listener) error {
		for {
			conn, err := l.Accept()
			if err != nil {
				return err
			}
			go answerEchoes(conn)
		}
	})
}

func answerEchoes(conn net.Conn) {
	defer func() { _ = conn.Close() }() // the connection has failed
	in := bufio.NewReader(conn)
	var request, out []byte
	for {
		var err error
		if request, err = readMessage(in, request); err != nil {
			return
		}
		out = appendResponse(binary.LittleEndian.AppendUint32(out[:0], uint32(responseLength(request))), request)
		if _, err := conn.Write(out); err != nil {
			return
		}
	}
}

// readMessage reads a length and as many bytes, into b if they fit.
func readMessage(in *bufio.Reader, b []byte) ([]byte, error) {
	length, err := in.Peek(4)
	if err != nil {
		return nil, err
	}
	n := int(binary.LittleEndian.Uint32(length))
	if _, err := in.Discard(4); err != nil {
		return nil, err
	}
	if n > cap(b) {
		b = make([]byte, n)
	}
	_, err = io.ReadFull(in, b[:n])
	return b[:n], err
}

type echoClient []*echoConn

type echoConn struct {
	net.Conn
	in  *bufio.Reader
	out []byte
}

func connectEcho(address string, callers int, _ *tls.Config) (client, error) {
	c := make(echoClient, callers)
	for i := range c {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			return nil, err
		}
		c[i] = &echoConn{Conn: conn, in: bufio.NewReader(conn)}
	}
	return c, nil
}

func (c echoClient) call(_ context.Context, caller int, request, dst []byte) ([]byte, error) {
	conn := c[caller]
	conn.out = append(binary.LittleEndian.AppendUint32(conn.out[:0], uint32(len(request))), request...)
	if _, err := conn.Write(conn.out); err != nil {
		return nil, err
	}
	return readMessage(conn.in, dst)
}

func (c echoClient) Close() (err error) {
	for _, conn := range c {
		err = errors.Join(err, conn.Close())
	}
	return err
}
