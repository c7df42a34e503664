package main

import (
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

func putRequest(request []byte, number uint64, responseBytes int) {
	binary.LittleEndian.PutUint64(request, number)
	binary.LittleEndian.PutUint32(request[8:], uint32(responseBytes))
}

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

// checkResponse checks that a response belongs to a request.
func checkResponse(request, response []byte) error {
	if len(response) != responseLength(request) || string(response[:requestBytes]) != string(request) {
		return fmt.Errorf("a wrong response of %d bytes", len(response))
	}
	return nil
}
