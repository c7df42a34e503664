// Package envelope decodes the messages of a stream into records: plain documents and the
// change events of Debezium and Maxwell.
//
//	format     key of the message            value of the message            record
//	json       the id                        a document, which is JSON       the document
//	raw        the id                        any bytes                       the document
//	debezium   {"id":17}, also in "payload"  {"op":"u","after":{...},...}    the row after the change
//	maxwell    {"table":"jobs","pk.id":17}   {"type":"update","data":{...}}  the row after the change
//
// A null value deletes the id, and so does an event of Debezium with operation d or of Maxwell
// with type delete. A Maxwell event that changes the key of a row is two records:
// the delete of the old id, then the document of the new one.
//
// The id of a change event is the key of the row: the value of a single column, 17 or abc,
// and a JSON array of the values in the order of the key if there are several: [17,"abc"].
// The values are strings, booleans and integers without fraction and exponent.
//
// The decoders are pure functions. A message that cannot be decoded is a record with a
// Problem. That includes events that do not have the whole row, as of a column that
// PostgreSQL did not log, and truncations of a table. Debezium's default placeholder of such a
// column is known in the forms of all types; do not set unavailable.value.placeholder.
package envelope
