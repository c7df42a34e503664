package pgoutput

import (
	"fmt"
	"strconv"
	"strings"
)

// LSN is a position in the write-ahead log.
type LSN uint64

// String returns the form that PostgreSQL uses: 16/B374D848.
func (l LSN) String() string { return fmt.Sprintf("%X/%X", uint32(l>>32), uint32(l)) }

// ParseLSN parses the form of String.
func ParseLSN(s string) (LSN, error) {
	high, low, _ := strings.Cut(s, "/")
	h, err := strconv.ParseUint(high, 16, 32)
	l, lowErr := strconv.ParseUint(low, 16, 32)
	if err != nil || lowErr != nil {
		return 0, fmt.Errorf("pgoutput: %q is not a position of the write-ahead log, such as 16/B374D848", s)
	}
	return LSN(h<<32 | l), nil
}

// Kind is the type of a message.
type Kind byte

// The kinds of protocol version 1.
const (
	Begin    Kind = 'B'
	Commit   Kind = 'C'
	Insert   Kind = 'I'
	Update   Kind = 'U'
	Delete   Kind = 'D'
	Truncate Kind = 'T'
	// Relation describes a table.
	Relation Kind = 'R'
	// Type, Origin and Logical carry nothing that a copy of a table needs. Their content is
	// not decoded.
	Type    Kind = 'Y'
	Origin  Kind = 'O'
	Logical Kind = 'M'
)

// ReplicaIdentity says which columns of the old row Update and Delete contain.
type ReplicaIdentity byte

// The replica identities of a table.
const (
	IdentityDefault ReplicaIdentity = 'd' // those of the primary key
	IdentityNothing ReplicaIdentity = 'n'
	IdentityFull    ReplicaIdentity = 'f' // all
	IdentityIndex   ReplicaIdentity = 'i' // those of an index
)

// MaxColumns is PostgreSQL's limit of the columns of a table.
const MaxColumns = 1600

// Message is a decoded message. The fields that are set depend on Kind.
type Message struct {
	Kind Kind

	// LSN is the position of the commit record, of Begin and Commit.
	LSN LSN
	// End is the position after the commit record, of Commit.
	End LSN
	// Time is the time of the commit in microseconds since 2000, of Begin.
	Time uint64
	// XID is the id of the transaction, of Begin. It is used again after 2^32 transactions.
	XID uint32

	// Table identifies the table of a change or a Relation.
	Table uint32
	// Tables are those of Truncate.
	Tables []uint32

	// Namespace, Name, Identity and Columns describe the table, of Relation.
	Namespace, Name string
	Identity        ReplicaIdentity
	Columns         []Column

	// New is the new row, of Insert and Update. Old has the values of the old row, of Update
	// and Delete; an Update has it only if the replica identity changed or is full. OldFull
	// says that Old has all columns instead of the replica identity with nulls elsewhere.
	New, Old        []Value
	HasOld, OldFull bool
}

// Column is a column of a table.
type Column struct {
	Name string
	Type uint32 // OID
	Key  bool   // part of the replica identity
}

// Value is a value of a row.
type Value struct {
	State ValueState
	Text  []byte // with Text only
}

// ValueState says whether a row contains the value of a column.
type ValueState byte

// The states of a value.
const (
	Null      ValueState = 'n'
	Text      ValueState = 't' // PostgreSQL's text form
	Unchanged ValueState = 'u' // an unchanged TOASTed value is not sent
)
