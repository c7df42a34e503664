package pgoutput

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
)

var (
	errShort     = errors.New("the message is cut off")
	errRemaining = errors.New("bytes follow the message")
)

// Decode decodes data into m, which is overwritten.
func (m *Message) Decode(data []byte) error {
	*m = Message{Columns: m.Columns[:0], Tables: m.Tables[:0], New: m.New[:0], Old: m.Old[:0]}
	if len(data) == 0 {
		return errors.New("pgoutput: empty message")
	}
	m.Kind = Kind(data[0])
	r := reader{rest: data[1:]}
	if known := m.decode(&r); !known {
		return fmt.Errorf("pgoutput: unknown message %q", data[0])
	}
	if r.err == nil && len(r.rest) > 0 {
		r.err = errRemaining
	}
	if r.err != nil {
		return fmt.Errorf("pgoutput: message %q of %d bytes: %w", data[0], len(data), r.err)
	}
	return nil
}

// decode reads the content of a message. It returns false if the kind is unknown.
func (m *Message) decode(r *reader) bool {
	switch m.Kind {
	case Begin:
		m.LSN, m.Time, m.XID = r.lsn(), r.u64(), r.u32()
	case Commit:
		r.want(0) // flags
		m.LSN, m.End = r.lsn(), r.lsn()
		r.u64() // time
	case Relation:
		m.decodeRelation(r)
	case Insert:
		m.Table = r.u32()
		r.want('N')
		m.New = r.row(m.New)
	case Update:
		m.Table = r.u32()
		if m.decodeOld(r, r.u8()) {
			r.want('N')
		}
		m.New = r.row(m.New)
	case Delete:
		m.Table = r.u32()
		if !m.decodeOld(r, r.u8()) {
			r.fail(errors.New("a delete without an old row"))
		}
	case Truncate:
		m.decodeTruncate(r)
	case Type, Origin, Logical:
		r.rest = nil
	default:
		return false
	}
	return true
}

// decodeOld reads the old row if tag begins one.
func (m *Message) decodeOld(r *reader, tag byte) bool {
	switch tag {
	case 'K', 'O':
		m.HasOld, m.OldFull = true, tag == 'O'
		m.Old = r.row(m.Old)
		return true
	case 'N':
	default:
		r.fail(fmt.Errorf("unknown row %q", tag))
	}
	return false
}

func (m *Message) decodeRelation(r *reader) {
	m.Table, m.Namespace, m.Name = r.u32(), r.string(), r.string()
	m.Identity = ReplicaIdentity(r.u8())
	switch m.Identity {
	case IdentityDefault, IdentityNothing, IdentityFull, IdentityIndex:
	default:
		r.fail(fmt.Errorf("unknown replica identity %q", m.Identity))
	}
	for range r.columns() {
		flags := r.u8()
		if flags > 1 {
			r.fail(fmt.Errorf("unknown flags %#x of a column", flags))
		}
		column := Column{Key: flags == 1, Name: r.string(), Type: r.u32()}
		r.u32() // type modifier
		if r.err != nil {
			return
		}
		m.Columns = append(m.Columns, column)
	}
}

func (m *Message) decodeTruncate(r *reader) {
	n := int(r.u32())
	r.u8() // cascade, restart identity
	if n < 0 || n > len(r.rest)/4 {
		r.fail(errShort)
		return
	}
	m.Tables = slices.Grow(m.Tables, n)
	for range n {
		m.Tables = append(m.Tables, r.u32())
	}
}

// reader reads the fields of a message. After an error it returns zeros.
type reader struct {
	rest []byte
	err  error
}

func (r *reader) fail(err error) {
	if r.err == nil {
		r.err = err
	}
	r.rest = nil
}

func (r *reader) bytes(n int) []byte {
	if n < 0 || n > len(r.rest) {
		r.fail(errShort)
		return nil
	}
	b := r.rest[:n:n]
	r.rest = r.rest[n:]
	return b
}

func (r *reader) u8() byte {
	if b := r.bytes(1); b != nil {
		return b[0]
	}
	return 0
}

func (r *reader) u16() uint16 {
	if b := r.bytes(2); b != nil {
		return binary.BigEndian.Uint16(b)
	}
	return 0
}

func (r *reader) u32() uint32 {
	if b := r.bytes(4); b != nil {
		return binary.BigEndian.Uint32(b)
	}
	return 0
}

func (r *reader) u64() uint64 {
	if b := r.bytes(8); b != nil {
		return binary.BigEndian.Uint64(b)
	}
	return 0
}

func (r *reader) lsn() LSN { return LSN(r.u64()) }

// want reads a byte that has one legal value.
func (r *reader) want(value byte) {
	if got := r.u8(); got != value && r.err == nil {
		r.fail(fmt.Errorf("byte %#x, want %#x", got, value))
	}
}

// string reads a string that ends with a zero byte.
func (r *reader) string() string {
	end := bytes.IndexByte(r.rest, 0)
	if end < 0 {
		r.fail(errShort)
		return ""
	}
	return string(r.bytes(end + 1)[:end])
}

// columns reads a number of columns.
func (r *reader) columns() int {
	n := int(r.u16())
	if n > MaxColumns {
		r.fail(fmt.Errorf("%d columns, more than %d", n, MaxColumns))
		return 0
	}
	return n
}

// row reads the values of a row and appends them to dst.
func (r *reader) row(dst []Value) []Value {
	for range r.columns() {
		v := Value{State: ValueState(r.u8())}
		switch v.State {
		case Null, Unchanged:
		case Text:
			v.Text = r.bytes(int(int32(r.u32())))
		default:
			r.fail(fmt.Errorf("unknown state %q of a value", byte(v.State)))
		}
		if r.err != nil {
			return dst
		}
		dst = append(dst, v)
	}
	return dst
}
