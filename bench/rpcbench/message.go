package main

import (
	"context"
	"encoding/binary"
	"fmt"
)

// A request has 16 bytes: a unique number, the length of the response, and 4 zero bytes. A response is
// the request padded with zeros.
const (
	requestBytes     = 16
	minResponseBytes = requestBytes
	maxResponseBytes = 16 << 20
)

var zeros [maxResponseBytes - requestBytes]byte

// responseLength returns the length that a request asks for, within the limits.
func responseLength(request []byte) int {
	if len(request) != requestBytes {
		return minResponseBytes
	}
	return min(max(int(binary.LittleEndian.Uint32(request[8:])), minResponseBytes), maxResponseBytes)
}

// appendResponse appends the response of every contestant.
func appendResponse(dst, request []byte) []byte {
	return append(append(dst, request...), zeros[:responseLength(request)-len(request)]...)
}

// respond returns the response in a new slice.
func respond(request []byte) []byte {
	return appendResponse(make([]byte, 0, responseLength(request)), request)
}

// A caller makes one call at a time.
type caller struct {
	client       client
	number       int
	calls        uint64
	request, dst []byte
}

func newCaller(client client, number, responseBytes int) *caller {
	c := &caller{client: client, number: number, request: make([]byte, requestBytes), dst: make([]byte, 0, 2*responseBytes)}
	binary.LittleEndian.PutUint32(c.request[8:], uint32(responseBytes))
	return c
}

// call makes a call and checks that the response belongs to the request.
func (c *caller) call(ctx context.Context) error {
	binary.LittleEndian.PutUint64(c.request, c.calls)
	c.calls++
	response, err := c.client.call(ctx, c.number, c.request, c.dst)
	if err == nil && (len(response) != responseLength(c.request) || string(response[:requestBytes]) != string(c.request)) {
		err = fmt.Errorf("a wrong response of %d bytes", len(response))
	}
	return err
}
