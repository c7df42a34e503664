package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
)

// HTTP/1.1 by net/http with default settings: a connection for
// each caller, kept alive, a POST for each request.

func serveHTTP(*tls.Config) (string, error) {
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		request, err := io.ReadAll(http.MaxBytesReader(w, r.Body, requestBytes))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		_, _ = w.Write(respond(request)) // an error means that the client has gone
	}), ReadHeaderTimeout: callTimeout}
	return listen(func(l net.Listener) error { return server.Serve(l) })
}

type httpClient struct {
	*http.Client
	url string
}

func connectHTTP(address string, callers int, _ *tls.Config) (client, error) {
	transport := &http.Transport{MaxIdleConns: callers, MaxIdleConnsPerHost: callers, MaxConnsPerHost: callers, DisableCompression: true}
	return httpClient{&http.Client{Transport: transport}, "http://" + address + benchMethod}, nil
}

func (c httpClient) call(ctx context.Context, _ int, request, dst []byte) ([]byte, error) {
	post, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(request))
	if err != nil {
		return nil, err
	}
	response, err := c.Do(post)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }() // it has been read
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("status %s", response.Status)
	}
	return readBody(dst[:0], response)
}

// readBody appends a body of known length.
func readBody(dst []byte, response *http.Response) ([]byte, error) {
	if response.ContentLength < 0 {
		rest, err := io.ReadAll(response.Body)
		return append(dst, rest...), err
	}
	if n := int(response.ContentLength); cap(dst) < n {
		dst = make([]byte, 0, n)
	}
	dst = dst[:response.ContentLength]
	_, err := io.ReadFull(response.Body, dst)
	return dst, err
}

func (c httpClient) Close() error {
	c.CloseIdleConnections()
	return nil
}
