package session

import (
	"crypto/tls"
	"crypto/x509"
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// Interval is the maximum time between two verifications of a session.
const Interval = 10 * time.Second

const (
	// sweepInterval is the interval at which a Set looks for sessions that are due.
	sweepInterval = time.Second
	// A Set verifies a session this much before Session.Due, so that the requests of the
	// session usually need not wait for it.
	ahead = 2 * sweepInterval
	// maxConcurrent limits the verifications of a Set at one time.
	maxConcurrent = 16
)

// A Credential is the proof of identity of a client. The zero Credential is always valid.
type Credential struct {
	// TLS is the state of the client's connection, nil for plain text. A certificate that
	// the handshake verified is verified again, whether or not the client also has a token.
	TLS *tls.ConnectionState
	// Check authenticates the client again, as by its token. nil: there is nothing to check.
	Check func() error
}

// hasCertificate reports whether the client has presented a certificate that was verified.
func (c *Credential) hasCertificate() bool { return c.TLS != nil && len(c.TLS.VerifiedChains) > 0 }

// A Set contains the sessions of servers that use the same authorities.
type Set struct {
	config func() (*tls.Config, error) // nil: certificates only expire
	start  time.Time                   // origin of the times of sessions

	verifying chan struct{} // has an element for each verification by the timer
	closing   chan struct{} // closed by Close
	running   sync.WaitGroup

	mu struct {
		sync.Mutex
		sessions map[*Session]struct{}
		timer    *time.Timer    // of sweep; nil before the first session
		roots    *x509.CertPool // at the last sweep
		closed   bool
	}
}

// NewSet returns an empty Set. config returns the TLS configuration of new connections,
// whose ClientCAs are the authorities; it must return the same ClientCAs until they change.
// It may be nil.
func NewSet(config func() (*tls.Config, error)) *Set {
	m := &Set{config: config, start: time.Now(), verifying: make(chan struct{}, maxConcurrent), closing: make(chan struct{})}
	m.mu.sessions = make(map[*Session]struct{})
	m.mu.roots, _ = m.roots()
	return m
}

// A Session is the use of a credential.
type Session struct {
	set        *Set
	credential Credential
	end        func(error)

	due    atomic.Int64          // when it must be verified, in nanoseconds since Set.start
	failed atomic.Pointer[error] // why it ended; nil while it is valid

	verifying sync.Mutex // held while it is verified
	verified  bool       // the certificate was verified with roots
	roots     *x509.CertPool
	until     time.Time // when the certificate expires, or one of its issuers does
}

// Add adds the session of a credential that was verified just now. end is called at most
// once, with the reason, when the credential is no longer valid; it must not block. The
// caller must call Close.
func (m *Set) Add(credential Credential, end func(error)) *Session {
	s := &Session{set: m, credential: credential, end: end}
	s.due.Store(math.MaxInt64)
	if !credential.hasCertificate() && credential.Check == nil {
		return s
	}
	if credential.hasCertificate() {
		s.until = expiry(credential.TLS.VerifiedChains)
	}
	s.schedule(time.Now())
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mu.closed {
		return s
	}
	m.mu.sessions[s] = struct{}{}
	if len(m.mu.sessions) == 1 {
		m.startLocked()
	}
	return s
}

// startLocked starts the timer.
func (m *Set) startLocked() {
	if m.mu.timer == nil {
		m.mu.timer = time.AfterFunc(sweepInterval, m.sweep)
		return
	}
	m.mu.timer.Reset(sweepInterval)
}

// Close stops the verification of all sessions and does not end them. It waits for the
// Checks in progress.
func (m *Set) Close() {
	m.mu.Lock()
	if !m.mu.closed {
		m.mu.closed = true
		close(m.closing)
	}
	if m.mu.timer != nil {
		m.mu.timer.Stop()
	}
	m.mu.Unlock()
	m.running.Wait()
}

// roots returns the current authorities, nil for those of the system. ok is false if they
// are unknown.
func (m *Set) roots() (roots *x509.CertPool, ok bool) {
	if m.config == nil {
		return nil, false
	}
	config, err := m.config()
	if err != nil || config == nil {
		return nil, false
	}
	return config.ClientCAs, true
}

// sweep verifies the sessions that are due soon, or all if the authorities have changed.
func (m *Set) sweep() {
	roots, known := m.roots()
	now := time.Now()
	m.mu.Lock()
	if m.mu.closed {
		m.mu.Unlock()
		return
	}
	m.running.Add(1)
	defer m.running.Done()
	changed := known && roots != m.mu.roots
	if changed {
		m.mu.roots = roots
	}
	var due []*Session
	for s := range m.mu.sessions {
		if changed || s.Due(now.Add(ahead)) {
			due = append(due, s)
		}
	}
	m.mu.Unlock()
	for _, s := range due {
		select {
		case <-m.closing:
			return
		case m.verifying <- struct{}{}:
		}
		if s.isOver() {
			<-m.verifying
			continue
		}
		m.running.Go(func() {
			defer func() { <-m.verifying }()
			s.verifyNow()
		})
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.mu.closed && len(m.mu.sessions) > 0 {
		m.startLocked()
	}
}

// Close removes the session, because it has ended.
func (s *Session) Close() {
	m := s.set
	s.due.Store(math.MaxInt64)
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.mu.sessions, s)
	if len(m.mu.sessions) == 0 && m.mu.timer != nil {
		m.mu.timer.Stop()
	}
}

// isOver reports whether the session is closed or has ended.
func (s *Session) isOver() bool { return s.due.Load() == math.MaxInt64 }

// Due reports whether Verify verifies the credential, which may take as long as Check.
func (s *Session) Due(now time.Time) bool { return int64(now.Sub(s.set.start)) >= s.due.Load() }

// Verify returns the reason why the session has ended, nil if it is valid. It verifies the
// credential if that is due and no other goroutine does it.
func (s *Session) Verify(now time.Time) error {
	if s.Due(now) {
		s.verifyNow()
	}
	if err := s.failed.Load(); err != nil {
		return *err
	}
	return nil
}

// verifyNow verifies the credential, and ends the session if it is not valid.
func (s *Session) verifyNow() {
	if !s.verifying.TryLock() {
		return
	}
	defer s.verifying.Unlock()
	if s.failed.Load() != nil {
		return
	}
	now := time.Now()
	err := s.verifyCertificate(now)
	if err == nil && s.credential.Check != nil {
		err = s.credential.Check()
	}
	if err == nil {
		s.schedule(now)
		return
	}
	s.failed.Store(&err)
	s.due.Store(math.MaxInt64)
	s.end(err)
}

// schedule sets the time of the next verification. verifying is held, or the session is new.
func (s *Session) schedule(now time.Time) {
	in := Interval
	if !s.until.IsZero() {
		in = min(in, s.until.Sub(now)+1) // it is valid at until
	}
	s.due.Store(int64(now.Sub(s.set.start) + in))
}

// verifyCertificate verifies the certificate if it has expired, if the authorities have
// changed, and once because they may have changed since the handshake. verifying is held.
func (s *Session) verifyCertificate(now time.Time) error {
	if !s.credential.hasCertificate() {
		return nil
	}
	roots, known := s.set.roots()
	expired := now.After(s.until)
	if !expired && (!known || s.verified && roots == s.roots) {
		return nil
	}
	if !known {
		return x509.CertificateInvalidError{Cert: s.credential.TLS.PeerCertificates[0], Reason: x509.Expired}
	}
	certificates := s.credential.TLS.PeerCertificates
	options := x509.VerifyOptions{
		Roots: roots, CurrentTime: now, Intermediates: x509.NewCertPool(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	for _, intermediate := range certificates[1:] {
		options.Intermediates.AddCert(intermediate)
	}
	chains, err := certificates[0].Verify(options)
	if err != nil {
		return err
	}
	s.verified, s.roots, s.until = true, roots, expiry(chains)
	return nil
}

// expiry returns the time until which one of the chains is valid.
func expiry(chains [][]*x509.Certificate) (until time.Time) {
	for _, chain := range chains {
		end := chain[0].NotAfter
		for _, certificate := range chain[1:] {
			if certificate.NotAfter.Before(end) {
				end = certificate.NotAfter
			}
		}
		if end.After(until) {
			until = end
		}
	}
	return until
}
