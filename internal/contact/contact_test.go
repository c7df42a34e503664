package contact

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/internal/virtualtime"
)

func TestContact(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		c := New("the store", slog.New(slog.NewTextHandler(&log, nil)))
		refused := errors.New("connection refused")
		lines := func() (text string) {
			text = log.String()
			log.Reset()
			return text
		}
		time.Sleep(time.Second)
		require.Equal(t, time.Second, c.Age(), "since New")
		require.NoError(t, c.Problem())

		c.Observe(refused)
		require.ErrorIs(t, c.Problem(), refused)
		require.Contains(t, lines(), `level=WARN msg="the store does not answer, or refuses; retrying" error="connection refused"`)
		for range 100 {
			time.Sleep(time.Second)
			c.Observe(refused)
		}
		require.Empty(t, lines(), "once for a failure")
		require.Equal(t, 101*time.Second, c.Age())

		c.Observe(nil)
		require.NoError(t, c.Problem())
		require.Zero(t, c.Age())
		require.Contains(t, lines(), `level=INFO msg="the store answers again" after=1m40s`)
		c.Observe(nil)
		require.Empty(t, lines())
	})
}

// TestFlappingServiceFillsNoLog: a service that fails and answers in turn is reported once a
// minute, and one that then stays away is, too.
func TestFlappingServiceFillsNoLog(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		c := New("the store", slog.New(slog.NewTextHandler(&log, nil)))
		for range 100 {
			c.Observe(errors.New("reset"))
			c.Observe(nil)
			time.Sleep(time.Second)
		}
		require.Equal(t, 4, strings.Count(log.String(), "\n"), log.String())
		log.Reset()
		for range 60 {
			c.Observe(errors.New("reset"))
			time.Sleep(time.Second)
		}
		require.Equal(t, 1, strings.Count(log.String(), "\n"), log.String())
	})
}
