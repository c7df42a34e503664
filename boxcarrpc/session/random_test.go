package session

import (
	"errors"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/internal/testcert"
	"docstore/internal/testseed"
	"docstore/internal/virtualtime"
)

// A world is a model of the credentials that are valid.
type world struct {
	issuers     [3]*testcert.CA
	authorities *authorities
	trusted     [3]bool
	tokens      [4]atomic.Bool // read by checks
	sessions    []*modelled
}

// A modelled session has a certificate, a token or both.
type modelled struct {
	*Session
	issuer       int // -1: no certificate
	expires      time.Time
	token        int       // -1: none
	invalidSince time.Time // zero while it is valid
	ending       ended
}

func (w *world) valid(m *modelled, now time.Time) bool {
	certificate := m.issuer < 0 || w.trusted[m.issuer] && !now.After(m.expires)
	return certificate && (m.token < 0 || w.tokens[m.token].Load())
}

// change adds sessions, or changes the valid credentials.
func (w *world) change(t *testing.T, rng *rand.Rand, set *Set) {
	switch rng.IntN(4) {
	case 0:
		w.tokens[rng.IntN(len(w.tokens))].Store(rng.IntN(2) == 0)
	case 1:
		var trusted []*testcert.CA
		for i, issuer := range w.issuers {
			if w.trusted[i] = rng.IntN(3) > 0; w.trusted[i] {
				trusted = append(trusted, issuer)
			}
		}
		w.authorities.set(trusted...)
	default:
		m := &modelled{issuer: rng.IntN(len(w.issuers)+1) - 1, token: rng.IntN(len(w.tokens)+1) - 1}
		var credential Credential
		if m.issuer >= 0 {
			credential.TLS = state(t, w.issuers[m.issuer], time.Now().Add(time.Duration(1+rng.IntN(100))*time.Second))
			m.expires = credential.TLS.PeerCertificates[0].NotAfter
		}
		if m.token >= 0 {
			credential.Check = func() error {
				if w.tokens[m.token].Load() {
					return nil
				}
				return errors.New("revoked")
			}
		}
		if w.valid(m, time.Now()) {
			m.Session = set.Add(credential, m.ending.end)
			w.sessions = append(w.sessions, m)
		}
	}
}

// Credentials are issued, revoked, restored and replaced at random. A session ends within
// Interval after its credential is no longer valid, and no session of a valid one ends.
func TestRandomRevocations(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		rng := testseed.Rand(t)
		w := &world{authorities: newAuthorities()}
		for i := range w.issuers {
			w.issuers[i] = testcert.NewCA(t, "ca")
		}
		set := NewSet(w.authorities.get)
		defer set.Close()
		refused := 0
		for range 300 {
			time.Sleep(time.Duration(rng.Int64N(int64(2 * time.Second))))
			synctest.Wait() // the timer has verified the sessions that are due
			now := time.Now()
			w.sessions = slices.DeleteFunc(w.sessions, func(m *modelled) bool {
				at, err := m.ending.get()
				if err == nil && m.issuer >= 0 && now.After(m.expires) {
					err = m.Verify(now)
					require.Error(t, err, "a certificate that has expired at %v is valid at %v", m.expires, now)
					at = now
				}
				if err == nil {
					if !m.invalidSince.IsZero() {
						require.Less(t, now.Sub(m.invalidSince), Interval, "the session of a refused client has not ended")
					}
					if rng.IntN(50) > 0 {
						return false
					}
				} else {
					refused++
					require.False(t, w.valid(m, at), "a valid session has ended: %v", err)
				}
				m.Close()
				return true
			})
			w.change(t, rng, set)
			for _, m := range w.sessions {
				switch {
				case w.valid(m, now):
					m.invalidSince = time.Time{}
				case m.invalidSince.IsZero():
					m.invalidSince = now
				}
			}
		}
		require.Greater(t, refused, 10)
		for _, m := range w.sessions {
			m.Close()
		}
		require.Empty(t, set.mu.sessions)
	})
}
