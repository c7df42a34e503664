package core

// An alarm is a time at which something is due for a server. Each server has at most one
// of each kind. The alarms of a kind are a binary heap, so that a step costs only for the
// servers that are due. As with the free slots, place i of the heap of kind k has the
// server peers[i].links.heap[k], so that a ladder has only two slices.
type alarm uint8

const (
	alarmChange  alarm = iota // a quarantine, pause or ejection ends, or a lease request is overdue
	alarmWelcome              // the server is to be asked before others
	alarmProbe                // the server is to be probed
	alarms
)

// links are the lists of servers. They belong to the place in the list, not to the peer
// that contains them.
type links struct {
	member int32         // the member at this place of the list of members
	heap   [alarms]int32 // the server at this place of the heap
}

// first returns the server whose alarm is due first, and the time.
func (l *Ladder) first(k alarm) (peer int32, due int64) {
	if l.alarms[k] == 0 {
		return none, never
	}
	peer = l.peers[0].links.heap[k]
	return peer, l.peers[peer].due[k]
}

// hasAlarm reports whether a server has an alarm of a kind.
func (p *Peer) hasAlarm(k alarm) bool { return p.place[k] > 0 }

// setAlarm sets a server's alarm, or clears it if due is never.
func (l *Ladder) setAlarm(k alarm, peer int32, due int64) {
	p := &l.peers[peer]
	place := p.place[k] - 1
	switch {
	case place >= 0 && due == never:
		l.alarms[k]--
		p.place[k] = 0
		if last := l.alarms[k]; place < last {
			l.putAlarm(k, place, l.peers[last].links.heap[k])
			l.siftAlarm(k, place)
		}
	case place >= 0 || due != never:
		p.due[k] = due
		if place < 0 {
			place = l.alarms[k]
			l.alarms[k]++
			l.putAlarm(k, place, peer)
		}
		l.siftAlarm(k, place)
	}
	if k == alarmChange {
		_, l.wake = l.first(k)
	}
}

func (l *Ladder) putAlarm(k alarm, place, peer int32) {
	l.peers[place].links.heap[k] = peer
	l.peers[peer].place[k] = place + 1
}

// siftAlarm moves the server at a place of a heap up or down to its right place.
func (l *Ladder) siftAlarm(k alarm, place int32) {
	peer := l.peers[place].links.heap[k]
	due := l.peers[peer].due[k]
	at := func(place int32) (peer int32, due int64) {
		peer = l.peers[place].links.heap[k]
		return peer, l.peers[peer].due[k]
	}
	for place > 0 {
		parent := (place - 1) / 2
		other, later := at(parent)
		if later <= due {
			break
		}
		l.putAlarm(k, place, other)
		place = parent
	}
	for {
		child := 2*place + 1
		if child >= l.alarms[k] {
			break
		}
		other, earliest := at(child)
		if child+1 < l.alarms[k] {
			if right, earlier := at(child + 1); earlier < earliest {
				child, other, earliest = child+1, right, earlier
			}
		}
		if earliest >= due {
			break
		}
		l.putAlarm(k, place, other)
		place = child
	}
	l.putAlarm(k, place, peer)
}
