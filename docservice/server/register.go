package server

import (
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// readyPoll is how often a server that is to be registered checks whether it is ready.
const readyPoll = 100 * time.Millisecond

// Register calls enter with the AdvertisedAddress of the server as soon as it is ready, so
// that clients find it. leave closes what enter returned, and must be called before Stop, so
// that no new clients come. If enter fails, the server fails.
func (s *Server) Register(advertise string, enter func(address string) (io.Closer, error)) (leave func()) {
	var running sync.WaitGroup
	leaving := make(chan struct{})
	running.Go(func() {
		if err := s.registered(advertise, enter, leaving); err != nil {
			s.Note(err, nil)
		}
	})
	return sync.OnceFunc(func() {
		close(leaving)
		running.Wait()
	})
}

// registered registers the server until it leaves.
func (s *Server) registered(advertise string, enter func(address string) (io.Closer, error), leaving <-chan struct{}) error {
	tick := time.NewTicker(readyPoll)
	defer tick.Stop()
	for !s.Ready() {
		select {
		case <-tick.C:
		case <-leaving:
			return nil
		}
	}
	address, err := s.AdvertisedAddress(advertise)
	if err != nil {
		return err
	}
	entry, err := enter(address)
	if err != nil {
		return err
	}
	<-leaving
	if err := entry.Close(); err != nil {
		s.options.Logger.Warn("unregistering failed; the registration expires by itself", "error", err)
	}
	return nil
}

// AdvertisedAddress returns the address under which other machines find the Boxcar listener:
// advertise, or if it is empty that of the listener, with the name of this machine if it has
// no IP address.
func (s *Server) AdvertisedAddress(advertise string) (string, error) {
	return advertisedAddress(advertise, s.BoxcarAddress())
}

func advertisedAddress(advertise, listener string) (string, error) {
	if advertise != "" {
		return advertise, nil
	}
	host, port, err := net.SplitHostPort(listener)
	if err != nil {
		return "", err
	}
	if ip := net.ParseIP(host); ip != nil && !ip.IsUnspecified() {
		return listener, nil
	}
	if host, err = os.Hostname(); err != nil {
		return "", fmt.Errorf("the host's name: %w; give --advertise", err)
	}
	return net.JoinHostPort(host, port), nil
}
