package session

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"docstore/internal/testcert"
	"docstore/internal/virtualtime"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// An authority is a replaceable set of authorities of a server.
type authorities struct{ config atomic.Pointer[tls.Config] }

func newAuthorities(of ...*testcert.CA) *authorities {
	a := new(authorities)
	a.set(of...)
	return a
}

func (a *authorities) set(of ...*testcert.CA) {
	pool := x509.NewCertPool()
	for _, ca := range of {
		pool.AddCert(ca.Certificate)
	}
	a.config.Store(&tls.Config{MinVersion: tls.VersionTLS13, ClientCAs: pool})
}

func (a *authorities) get() (*tls.Config, error) { return a.config.Load(), nil }

// state returns the state of a connection whose client has a certificate of ca.
func state(t *testing.T, ca *testcert.CA, end time.Time) *tls.ConnectionState {
	content, _ := ca.Issue(t, "client", end)
	block, _ := pem.Decode(content)
	certificate, err := x509.ParseCertificate(block.Bytes)
	require.NoError(t, err)
	chain := []*x509.Certificate{certificate, ca.Certificate}
	return &tls.ConnectionState{PeerCertificates: chain[:1], VerifiedChains: [][]*x509.Certificate{chain}}
}

// ended records when a session ended and why.
type ended struct {
	mu  sync.Mutex
	at  time.Time
	err error
	n   int
}

func (e *ended) end(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.at, e.err = time.Now(), err
	e.n++
}

func (e *ended) get() (at time.Time, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.n > 1 {
		panic("ended twice")
	}
	return e.at, e.err
}

func TestARemovedAuthorityEndsItsSessions(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		old, next := testcert.NewCA(t, "old"), testcert.NewCA(t, "next")
		a := newAuthorities(old, next)
		set := NewSet(a.get)
		defer set.Close()
		var ofOld, ofNext, late ended
		defer set.Add(Credential{TLS: state(t, old, time.Now().Add(time.Hour))}, ofOld.end).Close()
		defer set.Add(Credential{TLS: state(t, next, time.Now().Add(time.Hour))}, ofNext.end).Close()
		time.Sleep(time.Minute)
		_, err := ofOld.get()
		require.NoError(t, err)
		handshaken := state(t, old, time.Now().Add(time.Hour))
		a.set(next)
		changed := time.Now()
		// The handshake was before the change, and this is after it.
		defer set.Add(Credential{TLS: handshaken}, late.end).Close()
		time.Sleep(Interval)
		for _, e := range []*ended{&ofOld, &late} {
			at, err := e.get()
			require.ErrorContains(t, err, "unknown authority")
			require.LessOrEqual(t, at.Sub(changed), 2*sweepInterval)
		}
		_, err = ofNext.get()
		require.NoError(t, err)
	})
}

// A session ends with the certificate, or with that of an issuer.
func TestACertificateEndsItsSession(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		ca := testcert.NewCA(t, "ca") // valid for an hour
		a := newAuthorities(ca)
		for _, config := range []func() (*tls.Config, error){a.get, nil, func() (*tls.Config, error) { return nil, errors.New("unreadable") }} {
			set := NewSet(config)
			start := time.Now()
			var short, long ended
			s := set.Add(Credential{TLS: state(t, ca, start.Add(100*time.Second))}, short.end)
			defer s.Close()
			defer set.Add(Credential{TLS: state(t, ca, start.Add(24*time.Hour))}, long.end).Close()
			time.Sleep(99 * time.Second)
			require.NoError(t, s.Verify(time.Now()))
			time.Sleep(3 * time.Second)
			at, err := short.get()
			require.ErrorContains(t, err, "expired")
			require.LessOrEqual(t, at.Sub(start), 100*time.Second+sweepInterval)
			require.Equal(t, err, s.Verify(time.Now()))
			_, err = long.get()
			require.NoError(t, err)
			set.Close()
		}
		set := NewSet(a.get)
		defer set.Close()
		var end ended
		defer set.Add(Credential{TLS: state(t, ca, time.Now().Add(24*time.Hour))}, end.end).Close()
		time.Sleep(time.Until(ca.Certificate.NotAfter) + sweepInterval + time.Second)
		_, err := end.get()
		require.ErrorContains(t, err, "expired", "the authority")
	})
}

func TestChecksOfTokens(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		set := NewSet(nil)
		defer set.Close()
		revoked := errors.New("revoked")
		var valid atomic.Bool
		var checks atomic.Int64
		valid.Store(true)
		var end ended
		s := set.Add(Credential{Check: func() error {
			checks.Add(1)
			if valid.Load() {
				return nil
			}
			return revoked
		}}, end.end)
		time.Sleep(10 * time.Minute)
		require.InDelta(t, 10*time.Minute/(Interval-ahead), checks.Load(), 10)
		valid.Store(false)
		start := time.Now()
		time.Sleep(Interval)
		at, err := end.get()
		require.Equal(t, revoked, err)
		require.LessOrEqual(t, at.Sub(start), Interval)
		require.Equal(t, revoked, s.Verify(time.Now()))
		n := checks.Load()
		time.Sleep(time.Minute)
		require.Equal(t, n, checks.Load(), "an ended session is not verified")
		s.Close()

		var closed ended
		set.Add(Credential{Check: func() error { return revoked }}, closed.end).Close()
		forever := set.Add(Credential{}, closed.end)
		time.Sleep(time.Minute)
		_, err = closed.get()
		require.NoError(t, err)
		require.NoError(t, forever.Verify(time.Now()))
	})
}

// A server that was stopped for long verifies a client before it serves it, even if the
// timer has not run yet.
func TestVerifyAfterAPause(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		set := NewSet(nil)
		revoked := errors.New("revoked")
		var end ended
		s := set.Add(Credential{Check: func() error { return revoked }}, end.end)
		defer s.Close()
		set.Close() // no timer
		now := time.Now()
		require.False(t, s.Due(now.Add(Interval-1)))
		require.NoError(t, s.Verify(now.Add(Interval-1)))
		require.Equal(t, revoked, s.Verify(now.Add(Interval)))
		_, err := end.get()
		require.Equal(t, revoked, err)
	})
}

// A slow check delays neither Verify nor the other sessions.
func TestASlowCheckDelaysNoOther(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		set := NewSet(nil)
		finish := make(chan struct{})
		slow := set.Add(Credential{Check: func() error { <-finish; return nil }}, func(error) {})
		defer slow.Close()
		var end ended
		defer set.Add(Credential{Check: func() error { return errors.New("revoked") }}, end.end).Close()
		time.Sleep(2 * Interval)
		_, err := end.get()
		require.Error(t, err)
		require.NoError(t, slow.Verify(time.Now()))
		closed := make(chan struct{})
		go func() { set.Close(); close(closed) }()
		synctest.Wait()
		select {
		case <-closed:
			t.Fatal("Close does not wait for the check")
		default:
		}
		close(finish)
		<-closed
	})
}

// Checks that wait for others are not made when their sessions, or the set, are closed.
func TestCloseMakesNoFurtherChecks(t *testing.T) {
	for name, closeFirst := range map[string]bool{"sessions": true, "set": false} {
		t.Run(name, func(t *testing.T) {
			virtualtime.Test(t, func(t *testing.T) {
				set := NewSet(nil)
				finish := make(chan struct{})
				var checks atomic.Int64
				var sessions []*Session
				for range 10 * maxConcurrent {
					sessions = append(sessions, set.Add(Credential{Check: func() error {
						checks.Add(1)
						<-finish
						return nil
					}}, func(error) {}))
				}
				time.Sleep(Interval)
				require.Equal(t, int64(maxConcurrent), checks.Load())
				if closeFirst {
					for _, s := range sessions {
						s.Close()
					}
					close(finish)
					synctest.Wait()
				}
				closed := make(chan struct{})
				go func() { set.Close(); close(closed) }()
				synctest.Wait()
				if !closeFirst {
					close(finish)
				}
				<-closed
				require.Equal(t, int64(maxConcurrent), checks.Load())
				for _, s := range sessions {
					s.Close()
				}
			})
		})
	}
}

func BenchmarkDue(b *testing.B) {
	set := NewSet(nil)
	defer set.Close()
	s := set.Add(Credential{Check: func() error { return nil }}, func(error) {})
	defer s.Close()
	b.ReportAllocs()
	for b.Loop() {
		if err := s.Verify(time.Now()); err != nil {
			b.Fatal(err)
		}
	}
}
