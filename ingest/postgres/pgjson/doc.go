// Package pgjson converts values of PostgreSQL, in their text form, to JSON:
//
//	boolean                        true, false
//	integers, numeric, real,
//	double precision               a number with the digits of PostgreSQL; NaN and the
//	                               infinities are strings
//	json, jsonb                    the value itself
//	timestamp with time zone       "2026-11-23T08:45:00.5Z", RFC 3339
//	timestamp                      "2026-11-23T08:45:00.5", without an offset
//	bytea                          base64
//	arrays                         arrays, in several dimensions too
//	domains                        as their base type
//	all others                     a string, the text form of PostgreSQL
//
// The text forms must be those of a session with the settings Settings. A timestamp of
// another form, such as infinity or one before the year 1, stays the string that PostgreSQL
// writes.
package pgjson

// Settings are the settings of a session on which the text forms depend.
func Settings() map[string]string {
	return map[string]string{
		"client_encoding":    "UTF8",
		"DateStyle":          "ISO, YMD",
		"IntervalStyle":      "iso_8601",
		"TimeZone":           "UTC",
		"extra_float_digits": "1",
		"bytea_output":       "hex",
	}
}
