package main

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
)

const serverCount = 3

// A trial has servers, their callers, and the link between them.
type trial struct {
	lasts   time.Duration // duration of a fault, and of the observation after it
	file    *os.File
	account *account
	link    *link
	callers *host
	servers []*server
	load    *load
}

// newTrial starts the servers and the load. On an error it stops all.
func newTrial(hedgeAfter, lasts time.Duration) (t *trial, err error) {
	t = &trial{lasts: lasts}
	defer func() {
		if err != nil {
			err = errors.Join(err, t.close())
		}
	}()
	if t.file, err = os.CreateTemp("", "chaos-"); err != nil {
		return t, err
	}
	if t.account, err = openAccount(t.file); err != nil {
		return t, err
	}
	var hosts []*host
	for i := range 1 + serverCount {
		h, err := newHost(1 + i)
		if err != nil {
			for _, h := range hosts {
				err = errors.Join(err, h.Close())
			}
			return t, err
		}
		hosts = append(hosts, h)
	}
	t.link, t.callers = newLink(hosts), hosts[0]
	var addresses []string
	for _, h := range hosts[1:] {
		s := &server{host: h, account: t.file}
		t.servers = append(t.servers, s)
		if err := s.start(); err != nil {
			return t, err
		}
		addresses = append(addresses, s.address())
	}
	pool, err := newPool(addresses, t.callers, hedgeAfter)
	if err != nil {
		return t, err
	}
	t.load = startLoad(pool)
	time.Sleep(lasts) // to connect, and for the servers to warm up
	return t, nil
}

// setLink sets the conditions of a server's packets.
func (t *trial) setLink(server int, c conditions) { t.link.conditions[1+server].Store(&c) }

// A report has the results of callers during a fault, of idempotent methods (twice) and others (once).
type report struct{ twice, once tally }

// apply applies a fault to a server for a while.
func (t *trial) apply(f fault, server int) (report, error) {
	t.load.take()
	if err := f.begin(t, server); err != nil {
		return report{}, fmt.Errorf("%s: %w", f.name, err)
	}
	time.Sleep(t.lasts)
	if err := f.end(t, server); err != nil {
		return report{}, fmt.Errorf("ending %s: %w", f.name, err)
	}
	time.Sleep(t.lasts)
	var r report
	r.twice, r.once = t.load.take()
	return r, nil
}

// end stops the load and the servers, and checks all calls.
func (t *trial) end() (audit, error) {
	t.load.end()
	err := t.close()
	if t.load.full.Load() {
		err = errors.Join(err, errors.New("the account is full: use fewer rounds"))
	}
	return t.audit(), err
}

func (t *trial) close() (err error) {
	if t.load != nil {
		t.load.end()
		err = t.load.pool.Close()
	}
	for _, s := range t.servers {
		err = errors.Join(err, s.end(syscall.SIGKILL))
	}
	if t.link != nil {
		err = errors.Join(err, t.link.Close())
	}
	if t.file != nil {
		err = errors.Join(err, t.file.Close(), os.Remove(t.file.Name()))
	}
	return err
}

// An audit compares the results of calls with the executions by servers. All except the first two
// counts must be 0.
type audit struct {
	calls, failed int

	noEnd        int // calls that never ended
	wrong        int // with the response of another call, or a corrupted one
	neverDone    int // succeeded, but was never executed
	doneTwice    int // not idempotent, but executed twice
	notUntouched int // "not processed", but executed
}

func (a audit) faultless() bool {
	a.calls, a.failed = 0, 0
	return a == audit{}
}

func (t *trial) audit() (a audit) {
	for call, v := range t.load.verdicts {
		if v == unused {
			continue
		}
		a.calls++
		count := t.account.count(uint64(call))
		if count > 1 && !idempotent(uint64(call)) {
			a.doneTwice++
		}
		switch v {
		case pending:
			a.noEnd++
		case answered:
			if count == 0 {
				a.neverDone++
			}
		case wrong:
			a.wrong++
		case untouched:
			a.failed++
			if count > 0 {
				a.notUntouched++
			}
		default:
			a.failed++
		}
	}
	return a
}
