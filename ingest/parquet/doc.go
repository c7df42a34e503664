// Package parquet reads the rows of a Parquet file as JSON objects.
//
//	r, err := parquet.Open(file, size, parquet.Options{Columns: wanted})
//	err = r.Skip(rows)
//	text, err := r.Next()
//
// # Values
//
//	boolean, integer             true, 17
//	float16, float, double       1.5; NaN is null, infinite values are the strings
//	                             "Infinity" and "-Infinity"
//	decimal                      12.50, a number with all digits of its scale
//	string, enum, UUID           a string
//	JSON                         the value itself
//	date, time                   "2026-01-31", "23:59:59.123"; years are from 0 to 9999
//	timestamp                    "2026-01-31T23:59:59.123Z", without Z if it is a local time
//	bytes without a type         a base64 string
//	list                         an array
//	map                          an object if the keys are strings, else an array of
//	                             {"key":...,"value":...}
//	group                        an object
//	null                         null; a top-level field whose name begins with "_" is omitted
//
// # Format
//
// Data pages of versions 1 and 2 are read in all encodings of the format but BIT_PACKED, and in all
// compressions but LZO and the deprecated LZ4. Encrypted files, and columns in other files, are
// refused. Checksums of pages, the sizes of decompressed pages, and the numbers of rows, values
// and nulls are verified: a mismatch is an error that names row group, column and page. The pages
// are decoded here, because parquet-go 0.32 returns wrong values without an error for some:
//
//   - pages of LZ4_RAW that shrink to more than a third;
//   - booleans in runs of the encoding RLE;
//   - dictionary indexes and values that end before the number in the page's header;
//   - row groups in another compression than the first one.
//
// It also allocates any amount of memory for a damaged page of LZ4_RAW. Its structures of the
// format and its schema are used.
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
package parquet
