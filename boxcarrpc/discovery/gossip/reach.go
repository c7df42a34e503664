package gossip

import (
	"math/rand/v2"
	"time"

	"github.com/hashicorp/memberlist"
)

// maxRemembered is how many members are remembered after they have gone, to be tried
// again.
const maxRemembered = 1000

// reach joins the seeds, and later members that are not heard of.
func (m *Member) reach() {
	for first := true; ; first = false {
		for _, address := range m.missing() {
			if m.ctx.Err() != nil {
				return
			}
			if _, err := m.list.Join([]string{address}); err != nil {
				m.options.Logger.Debug("a member cannot be reached", "address", address, "error", err)
			} else if first {
				break
			}
			if !first {
				break // one in each interval
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

// missing lists the addresses at which nobody is heard of, in random order.
func (m *Member) missing() (list []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	heard := map[string]bool{m.address: true}
	for name := range m.mu.others {
		heard[m.mu.known[name]] = true
	}
	for _, address := range m.mu.seeds {
		if !heard[address] {
			heard[address] = true
			list = append(list, address)
		}
	}
	for _, address := range m.mu.known {
		if !heard[address] {
			heard[address] = true
			list = append(list, address)
		}
	}
	rand.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	return list
}

// remember keeps the address of a member for when it is not heard of any more.
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
