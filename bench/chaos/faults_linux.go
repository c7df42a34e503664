package main

import (
	"syscall"
	"time"
)

// A fault affects one server for a limited time.
type fault struct {
	name  string
	begin func(*trial, int) error
	end   func(*trial, int) error
}

func heal(t *trial, s int) error {
	t.setLink(s, conditions{})
	return nil
}

func degrade(c conditions) func(*trial, int) error {
	return func(t *trial, s int) error {
		t.setLink(s, c)
		return nil
	}
}

func nothing(*trial, int) error { return nil }

var faults = []fault{
	{"none", nothing, nothing},
	{"SIGTERM, started again",
		func(t *trial, s int) error { return t.servers[s].end(syscall.SIGTERM) },
		func(t *trial, s int) error { return t.servers[s].start() }},
	{"kill -9, started again",
		func(t *trial, s int) error { return t.servers[s].end(syscall.SIGKILL) },
		func(t *trial, s int) error { return t.servers[s].start() }},
	{"SIGSTOP, SIGCONT",
		func(t *trial, s int) error { return t.servers[s].signal(syscall.SIGSTOP) },
		func(t *trial, s int) error { return t.servers[s].signal(syscall.SIGCONT) }},
	{"partition", degrade(conditions{cutFrom: true, cutTo: true}), heal},
	{"server's packets lost", degrade(conditions{cutFrom: true}), heal},
	{"clients' packets lost", degrade(conditions{cutTo: true}), heal},
	// The server restarts while it is unreachable: its clients' connections are half-open.
	{"partition and restart", func(t *trial, s int) error {
		t.setLink(s, conditions{cutFrom: true, cutTo: true})
		return t.servers[s].end(syscall.SIGKILL)
	}, func(t *trial, s int) error {
		if err := t.servers[s].start(); err != nil {
			return err
		}
		return heal(t, s)
	}},
	{"5 % packet loss", degrade(conditions{loss: 0.05}), heal},
	{"100 ms delay", degrade(conditions{delay: 100 * time.Millisecond}), heal},
	{"1 % of packets corrupted", degrade(conditions{corrupt: 0.01}), heal},
}
