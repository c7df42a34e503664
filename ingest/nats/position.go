package nats

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"docstore/ingest/internal/cursors"
)

// position is a position in a stream: a decoded cursor.
type position struct {
	created int64  // of the stream, nanoseconds since 1970
	last    uint64 // sequence of the last message read
	content content
	stream  string
}

// content identifies the last message that was read: its sequence is used again in an older copy of
// the stream.
type content struct {
	time int64  // when it was stored, nanoseconds since 1970; 0: unknown
	crc  uint32 // of its subject and data
}

var cursorKind = cursors.Kind{
	Magic: "DSNA", Version: 1, Name: "NATS",
	Foreign: errors.New("the queue's cursor is not one of NATS; use --resume=false to append the stream from its start"),
	Damaged: errors.New("the queue's cursor of NATS is damaged; use --resume=false to append the stream from its start"),
}

// String describes the position for messages.
func (p *position) String() string {
	return fmt.Sprintf("stream %s, sequence %d", p.stream, p.last)
}

// append appends the encoded position to dst.
func (p *position) append(dst []byte) []byte {
	dst = binary.LittleEndian.AppendUint64(cursorKind.Append(dst), uint64(p.created))
	dst = binary.LittleEndian.AppendUint64(dst, p.last)
	dst = binary.LittleEndian.AppendUint64(dst, uint64(p.content.time))
	dst = binary.LittleEndian.AppendUint32(dst, p.content.crc)
	return append(dst, p.stream...)
}

// parsePosition decodes the result of append.
func parsePosition(stored []byte) (*position, error) {
	version, d, err := cursorKind.Open(stored)
	if err != nil {
		return nil, err
	}
	p := &position{created: int64(d.Uint64()), last: d.Uint64()}
	if version > 0 {
		p.content = content{time: int64(d.Uint64()), crc: d.Uint32()}
	}
	if p.stream = string(d.Rest(maxStreamBytes)); p.stream == "" {
		d.Fail()
	}
	return p, d.End()
}

// state is the state of a stream.
type state struct {
	created     int64
	first, last uint64 // sequences; first is last+1 in an empty stream
	// replaces says that the stream discards only messages that a later one of the same
	// subject, and so of the same id, has replaced.
	replaces bool
	// expires says that keys of a bucket disappear after a time without a message.
	expires bool
}

// check checks that reading behind a position leaves out nothing.
func (p *position) check(now state) error {
	if err := sameStream(p.created, now); err != nil {
		return err
	}
	if err := p.checkEnd(now); err != nil {
		return err
	}
	if now.first > p.last+1 && !now.replaces {
		return fmt.Errorf("the messages %d to %d were discarded before they were read; the queue may differ from the stream: "+
			"use --resume=false to append it from its start, preferably to a new queue", p.last+1, now.first-1)
	}
	return nil
}

// checkEnd checks that the stream does not end before a position.
func (p *position) checkEnd(now state) error {
	if now.last >= p.last {
		return nil
	}
	return fmt.Errorf("the messages %d to %d were read, and the stream ends before them: it may be an older copy; "+
		"use --resume=false to append it from its start, preferably to a new queue", now.last+1, p.last)
}

// sameStream checks that a stream is the one that was created at a time, and that it can be read.
func sameStream(created int64, now state) error {
	if created == now.created {
		return checkExpiry(now)
	}
	return fmt.Errorf("the stream was deleted and created again at %s (before: %s): its sequences are others; "+
		"use --resume=false to append it from its start", formatTime(now.created), formatTime(created))
}

// checkExpiry checks that the stream tells when a key expires.
func checkExpiry(now state) error {
	if !now.expires {
		return nil
	}
	return errors.New("the bucket's keys expire without a message, so their documents would stay for ever: give the bucket " +
		"a TTL of markers (LimitMarkerTTL, of NATS 2.11), or remove its TTL")
}

func formatTime(nanoseconds int64) string {
	return time.Unix(0, nanoseconds).UTC().Format(time.RFC3339Nano)
}

// Describe describes a stored cursor. The error says that it is none of NATS.
func Describe(stored []byte) (string, error) {
	p, err := parsePosition(stored)
	if err != nil {
		return "", err
	}
	return p.String(), nil
}
