package network

// Links returns the number of connections that an end still knows.
func (n *Network) Links() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.mu.links)
}
