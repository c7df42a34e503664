package main

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// conditions of the packets from and to a host.
type conditions struct {
	delay   time.Duration // of each packet
	loss    float64       // share of the packets
	corrupt float64       // share of the packets with data that get a wrong byte and a right checksum
	cutFrom bool          // its packets are dropped
	cutTo   bool          // packets to it are dropped
}

// A link carries the packets of hosts. Packets from one host to another stay in
// order.
type link struct {
	hosts      []*host
	conditions []atomic.Pointer[conditions]
	queues     []chan delivery
	done       sync.WaitGroup

	lost, corrupted atomic.Int64
}

type delivery struct {
	due    time.Time
	packet []byte
}

// queuedPackets limits the packets queued for a host; more are dropped, as by a switch.
const queuedPackets = 4096

func newLink(hosts []*host) *link {
	l := &link{hosts: hosts, conditions: make([]atomic.Pointer[conditions], len(hosts))}
	for i := range hosts {
		l.conditions[i].Store(&conditions{})
		l.queues = append(l.queues, make(chan delivery, queuedPackets))
		l.done.Go(func() { l.deliver(i) })
	}
	var readers sync.WaitGroup
	for i := range hosts {
		readers.Go(func() { l.carry(i) })
	}
	l.done.Go(func() {
		readers.Wait()
		for _, q := range l.queues {
			close(q)
		}
	})
	return l
}

// Close closes the hosts and ends the link.
func (l *link) Close() (err error) {
	for _, h := range l.hosts {
		err = errors.Join(err, h.Close())
	}
	l.done.Wait()
	return err
}

// carry reads the packets of a host.
func (l *link) carry(from int) {
	buffer := make([]byte, 2*mtu)
	for {
		n, err := l.hosts[from].tun.Read(buffer)
		if err != nil {
			return // closed
		}
		to, ok := l.hostOf(buffer[:n])
		if !ok {
			continue // IPv6, or an unknown destination
		}
		a, b := l.conditions[from].Load(), l.conditions[to].Load()
		packet := append([]byte(nil), buffer[:n]...)
		switch {
		case a.cutFrom || b.cutTo, rand.Float64() < a.loss+b.loss:
			l.lost.Add(1)
			continue
		case rand.Float64() < a.corrupt+b.corrupt && corrupt(packet):
			l.corrupted.Add(1)
		}
		select {
		case l.queues[to] <- delivery{time.Now().Add(a.delay + b.delay), packet}:
		default:
			l.lost.Add(1)
		}
	}
}

// hostOf returns the destination of an IPv4 packet.
func (l *link) hostOf(packet []byte) (to int, ok bool) {
	if len(packet) < 20 || packet[0]>>4 != 4 {
		return 0, false
	}
	for i, h := range l.hosts {
		if [4]byte(packet[16:20]) == h.ip {
			return i, true
		}
	}
	return 0, false
}

// deliver writes the packets of a host when they are due.
func (l *link) deliver(to int) {
	for d := range l.queues[to] {
		if wait := time.Until(d.due); wait > 0 {
			time.Sleep(wait)
		}
		if _, err := l.hosts[to].tun.Write(d.packet); errors.Is(err, os.ErrClosed) {
			continue // until the queue is closed
		}
	}
}

// corrupt changes a byte of the data of a TCP segment, and adapts the checksum so that the receiver
// accepts it (RFC 1624). It returns false if there is no data.
func corrupt(packet []byte) bool {
	const protocolTCP = 6
	segment := packet[int(packet[0]&15)*4:]
	if packet[9] != protocolTCP || len(segment) < 20 {
		return false
	}
	header := int(segment[12]>>4) * 4
	words := (len(segment) - header) / 2
	if words < 1 {
		return false
	}
	word := segment[header+2*rand.IntN(words):]
	before := binary.BigEndian.Uint16(word)
	word[rand.IntN(2)] ^= byte(1 + rand.IntN(255))
	sum := uint32(^binary.BigEndian.Uint16(segment[16:])) + uint32(^before) + uint32(binary.BigEndian.Uint16(word))
	for sum > 0xffff {
		sum = sum&0xffff + sum>>16
	}
	binary.BigEndian.PutUint16(segment[16:], ^uint16(sum))
	return true
}
