// Embed serves a queue directory over Boxcar and HTTP from another program, with health and
// metrics, until Ctrl-C:
//
//	go run . /srv/queue/jobs /srv/index
//
// The tests embed servers of an object store, and of a replica set with an etcd in the same
// process.
package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/signal"
	"time"

	"docstore/docservice/server"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		slog.Error("embed", "error", err)
		os.Exit(1) //nolint:gocritic // the process ends
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) != 2 {
		return errors.New("give the directories of the queue and of the index")
	}
	s, err := server.Start(server.Options{
		Collections: []server.Collection{{Name: "jobs", Source: args[0]}},
		DataDir:     args[1],
		Boxcar:      "127.0.0.1:7070",
		HTTP:        server.HTTP{Address: "127.0.0.1:7071"},
		Logger:      slog.Default(),
	})
	if err != nil {
		return err
	}
	select {
	case <-ctx.Done():
	case <-s.Failed(): // Stop returns the error
	}
	return s.Stop(10 * time.Second)
}
