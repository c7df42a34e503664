package server

import (
	"errors"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/internal/servertest"
)

type closer func() error

func (c closer) Close() error { return c() }

func TestRegister(t *testing.T) {
	queueDir := t.TempDir()
	servertest.Fill(t, queueDir, "a", `{"id":"a"}`)
	s, _ := startTestDaemon(t, testOptions(t, queueDir))
	entered, closed := make(chan string), false
	leave := s.Register("be-1:7070", func(address string) (io.Closer, error) {
		if !s.Ready() {
			return nil, errors.New("it is not ready")
		}
		entered <- address
		return closer(func() error { closed = true; return nil }), nil
	})
	require.Equal(t, "be-1:7070", <-entered)
	leave()
	require.True(t, closed)
	leave() // again
}

// A server that is never ready, and one that leaves before, are not registered.
func TestRegisterWaitsUntilReady(t *testing.T) {
	s, _ := startTestDaemon(t, testOptions(t, t.TempDir()))
	s.ending.Store(true) // as long as it ends it is not ready
	leave := s.Register("", func(string) (io.Closer, error) {
		t.Error("it is not ready")
		return nil, io.EOF
	})
	time.Sleep(2 * readyPoll)
	leave()
}

func TestFailedRegistrationStopsTheServer(t *testing.T) {
	queueDir := t.TempDir()
	servertest.Fill(t, queueDir, "a", `{"id":"a"}`)
	s, err := Start(testOptions(t, queueDir))
	require.NoError(t, err)
	leave := s.Register("", func(string) (io.Closer, error) { return nil, io.ErrUnexpectedEOF })
	<-s.Failed()
	leave()
	require.ErrorIs(t, s.Stop(time.Second), io.ErrUnexpectedEOF)
}
