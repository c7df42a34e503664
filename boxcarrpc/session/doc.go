// Package session verifies credentials again for as long as they are used, and ends their
// use when they are no longer valid: the token was revoked, the authority of the certificate
// was replaced, or the certificate has expired.
//
// A Session is the use of a credential: a connection, or a request that may take long. A
// server of any protocol adds it to a Set with a function that ends it:
//
//	s := set.Add(session.Credential{TLS: &state, Check: check}, func(error) { conn.Close() })
//	defer s.Close()
//
// The Set verifies each session at least every Interval, when the authorities change and
// when the certificate expires. It makes 16 verifications at a time: with 10,000 sessions a
// Check that takes more than 12 ms makes those that are idle late. A server also calls Session.Verify before it serves a
// request or sends a message, so that a process that was stopped in between, by a signal or
// with its virtual machine, serves no client that was refused meanwhile.
//
// All methods may be called concurrently.
package session
