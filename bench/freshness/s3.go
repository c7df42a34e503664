package main

import (
	"io"
	"log"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
)

// bucketName is the bucket of startS3.
const bucketName = "bench"

// latency is a log-normal distribution of latencies.
type latency struct{ median, p99 time.Duration }

// The latencies of S3 as published by turbopuffer.
var (
	putLatency = latency{100 * time.Millisecond, 195 * time.Millisecond}
	getLatency = latency{63 * time.Millisecond, 78 * time.Millisecond}
)

// random returns a random latency. 2.326 is the 99th percentile of the normal distribution.
func (l latency) random() time.Duration {
	sigma := math.Log(float64(l.p99)/float64(l.median)) / 2.326
	return time.Duration(float64(l.median) * math.Exp(sigma*rand.NormFloat64()))
}

// startS3 starts an S3 server in memory that delays requests by a multiple of S3's latencies.
func startS3(delay float64) (*httptest.Server, error) {
	backend := s3mem.New()
	if err := backend.CreateBucket(bucketName); err != nil {
		return nil, err
	}
	s3 := gofakes3.New(backend, gofakes3.WithLogger(gofakes3.DiscardLog())).Server()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		l := getLatency
		if r.Method == http.MethodPut {
			l = putLatency
		}
		time.Sleep(time.Duration(delay * float64(l.random())))
		s3.ServeHTTP(w, r)
	}))
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.Start()
	return server, nil
}
