// Package jobspb is the example's service, generated from jobs.proto by the
// standard plugins; make proto does it.
package jobspb

//go:generate sh ../../../scripts/generate-proto examples/grpcstubs/jobspb/jobs.proto
