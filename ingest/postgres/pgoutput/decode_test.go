package pgoutput

import (
	"encoding/binary"
	"encoding/hex"
	"testing"

	"github.com/stretchr/testify/require"
)

// encode returns the bytes of m.
func encode(m *Message) []byte {
	b := []byte{byte(m.Kind)}
	u64 := func(v uint64) { b = binary.BigEndian.AppendUint64(b, v) }
	u32 := func(v uint32) { b = binary.BigEndian.AppendUint32(b, v) }
	u16 := func(v int) { b = binary.BigEndian.AppendUint16(b, uint16(v)) }
	row := func(tag byte, values []Value) {
		b = append(b, tag)
		u16(len(values))
		for _, v := range values {
			b = append(b, byte(v.State))
			if v.State == Text {
				u32(uint32(len(v.Text)))
				b = append(b, v.Text...)
			}
		}
	}
	old := func() {
		if m.HasOld && m.OldFull {
			row('O', m.Old)
		} else if m.HasOld {
			row('K', m.Old)
		}
	}
	switch m.Kind {
	case Begin:
		u64(uint64(m.LSN))
		u64(0)
		u32(0)
	case Commit:
		b = append(b, 0)
		u64(uint64(m.LSN))
		u64(uint64(m.End))
		u64(0)
	case Relation:
		u32(m.Table)
		b = append(b, m.Namespace+"\x00"+m.Name+"\x00"...)
		b = append(b, byte(m.Identity))
		u16(len(m.Columns))
		for _, c := range m.Columns {
			b = append(b, 0)
			if c.Key {
				b[len(b)-1] = 1
			}
			b = append(b, c.Name+"\x00"...)
			u32(c.Type)
			u32(0)
		}
	case Insert:
		u32(m.Table)
		row('N', m.New)
	case Update:
		u32(m.Table)
		old()
		row('N', m.New)
	case Delete:
		u32(m.Table)
		old()
	case Truncate:
		u32(uint32(len(m.Tables)))
		b = append(b, 0)
		for _, t := range m.Tables {
			u32(t)
		}
	}
	return b
}

func text(s string) Value { return Value{State: Text, Text: []byte(s)} }

var examples = []*Message{
	{Kind: Begin, LSN: 0x16_B374D848},
	{Kind: Commit, LSN: 7, End: 9},
	{Kind: Relation, Table: 16385, Namespace: "public", Name: "jobs", Identity: IdentityDefault,
		Columns: []Column{{Name: "id", Type: 20, Key: true}, {Name: "title", Type: 25}}},
	{Kind: Insert, Table: 16385, New: []Value{text("17"), {State: Null}, text("")}},
	{Kind: Update, Table: 16385, New: []Value{text("17"), {State: Unchanged}}},
	{Kind: Update, Table: 16385, HasOld: true, Old: []Value{text("16"), {State: Null}}, New: []Value{text("17"), text("x")}},
	{Kind: Update, Table: 16385, HasOld: true, OldFull: true, Old: []Value{text("17"), text("a")}, New: []Value{text("17"), {State: Unchanged}}},
	{Kind: Delete, Table: 16385, HasOld: true, Old: []Value{text("17"), {State: Null}}},
	{Kind: Truncate, Tables: []uint32{16385, 16386}},
	{Kind: Type}, {Kind: Origin}, {Kind: Logical},
}

func TestDecode(t *testing.T) {
	var got Message
	for _, want := range examples {
		data := encode(want)
		require.NoError(t, got.Decode(data))
		require.Equal(t, data, encode(&got))
	}
}

// The bytes of an insert of (1, 'a', NULL), written by hand from the manual.
func TestDecodeBytes(t *testing.T) {
	data, err := hex.DecodeString("4900004001" + "4e0003" + "740000000131" + "740000000161" + "6e")
	require.NoError(t, err)
	var got Message
	require.NoError(t, got.Decode(data))
	require.Equal(t, Message{Kind: Insert, Table: 16385, New: []Value{text("1"), text("a"), {State: Null}}, Columns: got.Columns, Tables: got.Tables, Old: got.Old}, got)
}

func TestDecodeMalformed(t *testing.T) {
	for name, data := range map[string]string{
		"empty message":             "",
		"unknown message":           "Z",
		"cut off":                   "B\x00",
		"bytes follow":              string(encode(examples[0])) + "x",
		"unknown row":               "D\x00\x00\x00\x01X\x00\x00",
		"delete without an old row": "D\x00\x00\x00\x01N\x00\x00",
		"byte 0x4f, want 0x4e":      "I\x00\x00\x00\x01O\x00\x00",
		"unknown state":             "I\x00\x00\x00\x01N\x00\x01b",
		"more than 1600":            "I\x00\x00\x00\x01N\x06\x41",
		"replica identity":          "R\x00\x00\x00\x01a\x00b\x00x\x00\x00",
		"flags 0x2 of a column":     "R\x00\x00\x00\x01a\x00b\x00d\x00\x01\x02",
	} {
		var m Message
		require.ErrorContains(t, m.Decode([]byte(data)), name)
	}
	// Each cut and each negative length is an error.
	for _, m := range examples[:9] {
		data := encode(m)
		for end := range data {
			require.Error(t, new(Message).Decode(data[:end]), "%c %d", m.Kind, end)
		}
	}
	require.Error(t, new(Message).Decode([]byte("I\x00\x00\x00\x01N\x00\x01t\xff\xff\xff\xff")))
	require.Error(t, new(Message).Decode([]byte("T\xff\xff\xff\xff\x00")))
}

func TestLSN(t *testing.T) {
	require.Equal(t, "16/B374D848", LSN(0x16_B374D848).String())
	lsn, err := ParseLSN("16/B374D848")
	require.NoError(t, err)
	require.Equal(t, LSN(0x16_B374D848), lsn)
	for _, bad := range []string{"", "16", "16/", "x/1", "1/2/3", "1/2 ", "123456789/1"} {
		_, err := ParseLSN(bad)
		require.Error(t, err, bad)
	}
}

func TestDecodeAllocatesNothing(t *testing.T) {
	var m Message
	update := encode(examples[6])
	require.NoError(t, m.Decode(update))
	require.Zero(t, testing.AllocsPerRun(100, func() { _ = m.Decode(update) }))
}

// FuzzDecode: a message that decodes is encoded to the same bytes, except for the fields that
// Message does not have.
func FuzzDecode(f *testing.F) {
	for _, m := range examples {
		f.Add(encode(m))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var m, again Message
		if m.Decode(data) != nil {
			return
		}
		encoded := encode(&m)
		require.NoError(t, again.Decode(encoded))
		require.Equal(t, encoded, encode(&again))
		switch m.Kind {
		case Insert, Update, Delete:
			require.Equal(t, data, encoded)
		}
	})
}
