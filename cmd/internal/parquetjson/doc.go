// Package parquetjson reads the rows of a Parquet file as JSON objects.
//
//	r, err := parquetjson.Open(file, size, parquetjson.Options{Columns: wanted})
//	err = r.Skip(rows)
//	text, err := r.Next()
//
// # Values
//
//	boolean, integer             true, 17
//	float, double                1.5; NaN and infinite values are the strings "NaN",
//	                             "Infinity" and "-Infinity"
//	decimal                      12.50, a number with all digits of its scale
//	string, enum, UUID           a string
//	JSON                         the value itself
//	date, time                   "2026-01-31", "23:59:59.123"
//	timestamp                    "2026-01-31T23:59:59.123Z", without Z if it is a local time
//	bytes without a type         a base64 string
//	list                         an array
//	map                          an object if the keys are strings, else an array of
//	                             {"key":...,"value":...}
//	group                        an object
//	null                         null; a top-level field whose name begins with "_" is omitted
//
// # Memory
//
// Only the columns that are wanted are read. Those of one row group are in memory at a time,
// compressed, and one page of each with the dictionary of the column, decompressed. Before a row
// group is decoded, the headers of its pages are read and the sum is compared with
// Options.MaxBytes; a larger row group is an error. The values of a row take 24 bytes each, and a
// column has at most 8,388,608 in a row. The footer has at most 64 MiB.
//
// A Reader is used by one goroutine.
package parquetjson
