// Package pgoutput decodes the messages of PostgreSQL's output plugin pgoutput, protocol
// version 1, which sends each transaction as a whole after its commit:
//
//	Begin, (Relation | Type | Insert | Update | Delete | Truncate)*, Commit
//
// A Relation precedes the first change of a table in a connection, and the first one after
// each change of its columns. The format is that of the chapter "Logical Replication Message
// Formats" of PostgreSQL's manual.
//
// A Message refers to the bytes that were decoded and reuses its slices, so both are valid
// until the next call of Decode. Decode accepts any bytes: it returns an error for a message
// that is malformed, has a count above the limits, or has bytes left.
//
// # Limits
//
// A table of PostgreSQL has at most 1,600 columns (MaxColumns). The number of tables of a
// Truncate is bounded by the length of the message.
package pgoutput
