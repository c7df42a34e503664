package main

import (
	"syscall"
	"time"
)

// A fault befalls one server for a while.
type fault struct {
	name  string
	begin func(*town, int) error
	end   func(*town, int) error
}

func calm(t *town, s int) error {
	t.weather(s, weather{})
	return nil
}

func storm(w weather) func(*town, int) error {
	return func(t *town, s int) error {
		t.weather(s, w)
		return nil
	}
}

func nothing(*town, int) error { return nil }

var faults = []fault{
	{"none", nothing, nothing},
	{"SIGTERM, started again",
		func(t *town, s int) error { return t.servers[s].end(syscall.SIGTERM) },
		func(t *town, s int) error { return t.servers[s].start() }},
	{"kill -9, started again",
		func(t *town, s int) error { return t.servers[s].end(syscall.SIGKILL) },
		func(t *town, s int) error { return t.servers[s].start() }},
	{"SIGSTOP, SIGCONT",
		func(t *town, s int) error { return t.servers[s].signal(syscall.SIGSTOP) },
		func(t *town, s int) error { return t.servers[s].signal(syscall.SIGCONT) }},
	{"cut off, joined again", storm(weather{cutFrom: true, cutTo: true}), calm},
	{"hears, is not heard", storm(weather{cutFrom: true}), calm},
	{"is heard, does not hear", storm(weather{cutTo: true}), calm},
	// The host is gone without a word and comes back as another: its clients'
	// connections are half-open.
	{"cut off, killed, back", func(t *town, s int) error {
		t.weather(s, weather{cutFrom: true, cutTo: true})
		return t.servers[s].end(syscall.SIGKILL)
	}, func(t *town, s int) error {
		if err := t.servers[s].start(); err != nil {
			return err
		}
		return calm(t, s)
	}},
	{"5 % of packets lost", storm(weather{loss: 0.05}), calm},
	{"100 ms late", storm(weather{delay: 100 * time.Millisecond}), calm},
	{"1 % of packets falsified", storm(weather{falsify: 0.01}), calm},
}
