package main

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
)

const serverCount = 3

// A town is servers of one rival, their callers, and the link between them.
type town struct {
	rival   rival
	lasts   time.Duration // how long a fault lasts, and how long its end is watched
	file    *os.File
	account *account
	link    *link
	callers *host
	servers []*server
	load    *load
}

// newTown starts the servers and the load. On an error nothing is left.
func newTown(r rival, lasts time.Duration) (t *town, err error) {
	t = &town{rival: r, lasts: lasts}
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
		s := &server{host: h, rival: r.name, account: t.file}
		t.servers = append(t.servers, s)
		if err := s.start(); err != nil {
			return t, err
		}
		addresses = append(addresses, s.address())
	}
	c, err := r.client(addresses, t.callers)
	if err != nil {
		return t, err
	}
	t.load = startLoad(c)
	time.Sleep(lasts) // to connect, and for the servers to warm up
	return t, nil
}

// weather sets what befalls a server's packets.
func (t *town) weather(server int, w weather) { t.link.weather[1+server].Store(&w) }

// A report is what callers saw of a fault: those whose calls may be done twice, and
// the others.
type report struct{ twice, once tally }

// suffer has a fault befall a server.
func (t *town) suffer(f fault, server int) (report, error) {
	t.load.take()
	if err := f.begin(t, server); err != nil {
		return report{}, fmt.Errorf("%s: %w", f.name, err)
	}
	time.Sleep(t.lasts)
	if err := f.end(t, server); err != nil {
		return report{}, fmt.Errorf("the end of %s: %w", f.name, err)
	}
	time.Sleep(t.lasts)
	var r report
	r.twice, r.once = t.load.take()
	return r, nil
}

// end ends the load, then the servers, and checks the account.
func (t *town) end() (audit, error) {
	t.load.end()
	err := t.close()
	if t.load.full.Load() {
		err = errors.Join(err, errors.New("more calls than the account holds: give fewer rounds"))
	}
	return t.audit(), err
}

func (t *town) close() (err error) {
	if t.load != nil {
		t.load.end()
		err = t.load.client.Close()
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

// An audit compares what callers were told with what servers did. All but the first
// two counts must be 0.
type audit struct {
	calls, failed int

	noEnd        int // calls that never ended
	wrong        int // answered with another's answer, or a changed one
	neverDone    int // answered, and never begun
	doneTwice    int // may be done once only, and was begun again
	notUntouched int // "not processed", and begun
}

func (a audit) faultless() bool {
	a.calls, a.failed = 0, 0
	return a == audit{}
}

func (t *town) audit() (a audit) {
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
