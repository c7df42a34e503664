package gossip

import (
	"math/rand/v2"
	"time"

	"github.com/hashicorp/memberlist"
)

// maxRemembered is the maximum number of former members that are retried.
const maxRemembered = 1000

// reach joins the seeds, and later missing members.
func (m *Member) reach() {
	for first := true; ; first = false {
		for _, address := range m.missing() {
			if m.ctx.Err() != nil {
				return
			}
			if _, err := m.list.Join([]string{address}); err != nil {
				m.options.Logger.Debug("cannot reach a member", "address", address, "error", err)
			} else if first {
				break
			}
			if !first {
				break // one per interval
			}
		}
		timer := time.NewTimer(m.options.RejoinInterval/2 + rand.N(m.options.RejoinInterval))
		select {
		case <-timer.C:
		case <-m.ctx.Done():
			timer.Stop()
			return
		}
	}
}

// missing returns the addresses of seeds and former members that are not in the cluster,
// in random order.
func (m *Member) missing() (list []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	present := map[string]bool{m.address: true}
	for name := range m.mu.others {
		present[m.mu.known[name]] = true
	}
	for _, address := range m.mu.seeds {
		if !present[address] {
			present[address] = true
			list = append(list, address)
		}
	}
	for _, address := range m.mu.known {
		if !present[address] {
			present[address] = true
			list = append(list, address)
		}
	}
	rand.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	return list
}

// remember stores a member's address, and forgets former members beyond maxRemembered.
func (m *Member) remember(n *memberlist.Node) {
	for name := range m.mu.known {
		if len(m.mu.known) < maxRemembered+len(m.mu.others) {
			break
		}
		if _, here := m.mu.others[name]; !here {
			delete(m.mu.known, name)
		}
	}
	m.mu.known[n.Name] = n.Address()
}
