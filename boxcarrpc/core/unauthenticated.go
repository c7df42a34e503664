package core

import "container/list"

// Unauthenticated is a set of the connections whose clients have not authenticated, by where
// they come from. A server limits their number without refusing any: a new connection
// replaces the oldest one of the client with the most of them. So a client without
// credentials, however many connections it opens, only replaces its own, unless others have
// as many. A step takes constant time.
type Unauthenticated[K, C comparable] struct {
	limit   int
	conns   map[C]*list.Element // the elements of the queues of the clients
	clients map[K]*unauthenticatedClient[K, C]
	// byCount has the clients by their number of connections, and of these first those that
	// have this number for longest. most is the greatest number.
	byCount []*list.List
	most    int
}

// unauthenticatedClient is a client that has connections in the set.
type unauthenticatedClient[K, C comparable] struct {
	key     K
	conns   list.List     // of unauthenticatedConn, the oldest first
	inCount *list.Element // of byCount[conns.Len()]
}

type unauthenticatedConn[K, C comparable] struct {
	conn   C
	client *unauthenticatedClient[K, C]
}

// NewUnauthenticated returns an empty set for limit connections. limit is at least 1.
func NewUnauthenticated[K, C comparable](limit int) Unauthenticated[K, C] {
	return Unauthenticated[K, C]{
		limit: limit, conns: make(map[C]*list.Element), clients: make(map[K]*unauthenticatedClient[K, C]), byCount: make([]*list.List, 1),
	}
}

// Len returns the number of connections.
func (u *Unauthenticated[K, C]) Len() int { return len(u.conns) }

// Add adds a connection, which is not in the set. If the set is full, Add first removes
// another one, which the caller must close.
func (u *Unauthenticated[K, C]) Add(key K, conn C) (replaced C, full bool) {
	if full = len(u.conns) >= u.limit; full {
		replaced, _ = u.Evict()
	}
	client := u.clients[key]
	if client == nil {
		client = &unauthenticatedClient[K, C]{key: key}
		u.clients[key] = client
	} else {
		u.byCount[client.conns.Len()].Remove(client.inCount)
	}
	u.conns[conn] = client.conns.PushBack(unauthenticatedConn[K, C]{conn, client})
	u.count(client)
	return replaced, full
}

// Evict removes the oldest connection of the client with the most of them. The caller must
// close it. ok is false if the set is empty.
func (u *Unauthenticated[K, C]) Evict() (conn C, ok bool) {
	if u.most == 0 {
		return conn, false
	}
	client := u.byCount[u.most].Front().Value.(*unauthenticatedClient[K, C])
	conn = client.conns.Front().Value.(unauthenticatedConn[K, C]).conn
	return conn, u.Remove(conn)
}

// EvictOf removes the oldest connection of a client, as Evict.
func (u *Unauthenticated[K, C]) EvictOf(key K) (conn C, ok bool) {
	client := u.clients[key]
	if client == nil {
		return conn, false
	}
	conn = client.conns.Front().Value.(unauthenticatedConn[K, C]).conn
	return conn, u.Remove(conn)
}

// CountOf returns the number of connections of a client.
func (u *Unauthenticated[K, C]) CountOf(key K) int {
	if client := u.clients[key]; client != nil {
		return client.conns.Len()
	}
	return 0
}

// Remove removes a connection that has ended, or whose client has authenticated. It reports
// whether the connection was in the set.
func (u *Unauthenticated[K, C]) Remove(conn C) bool {
	element, ok := u.conns[conn]
	if !ok {
		return false
	}
	delete(u.conns, conn)
	client := element.Value.(unauthenticatedConn[K, C]).client
	u.byCount[client.conns.Len()].Remove(client.inCount)
	client.conns.Remove(element)
	u.count(client)
	return true
}

// count puts a client, which is not in byCount, there.
func (u *Unauthenticated[K, C]) count(client *unauthenticatedClient[K, C]) {
	n := client.conns.Len()
	if n == 0 {
		delete(u.clients, client.key)
	} else {
		if n == len(u.byCount) {
			u.byCount = append(u.byCount, list.New())
		}
		client.inCount = u.byCount[n].PushBack(client)
		u.most = max(u.most, n)
	}
	for u.most > 0 && u.byCount[u.most].Len() == 0 {
		u.most--
	}
}
