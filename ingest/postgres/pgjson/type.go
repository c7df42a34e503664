package pgjson

// Type converts the values of a type. Types are immutable.
type Type struct {
	append    func(dst, text []byte) ([]byte, error)
	element   *Type // of an array
	delimiter byte  // of an array
	bytes     bool
	timestamp bool
}

// The types that are not strings.
var (
	stringType    = &Type{append: appendText}
	boolType      = &Type{append: appendBool}
	numberType    = &Type{append: appendNumber}
	jsonType      = &Type{append: appendJSON}
	timestampType = &Type{append: appendTimestamp, timestamp: true}
	timestampTZ   = &Type{append: appendTimestampTZ, timestamp: true}
	byteaType     = &Type{append: appendBytea, bytes: true}
)

// String is the type of texts, and of all types that have no other form.
func String() *Type { return stringType }

// Array returns the type of arrays of element. The delimiter is that of pg_type, a comma
// except for boxes.
func Array(element *Type, delimiter byte) *Type {
	return &Type{element: element, delimiter: delimiter}
}

// builtin has the types with fixed OIDs.
var builtin = map[uint32]*Type{
	16: boolType,
	20: numberType, 21: numberType, 23: numberType, 26: numberType, // bigint, smallint, integer, oid
	700: numberType, 701: numberType, 1700: numberType, // real, double precision, numeric
	114: jsonType, 3802: jsonType, // json, jsonb
	1114: timestampType, 1184: timestampTZ,
	17: byteaType,
	// char, name, text, bpchar, varchar, date, time, interval, timetz, uuid
	18: stringType, 19: stringType, 25: stringType, 1042: stringType, 1043: stringType,
	1082: stringType, 1083: stringType, 1186: stringType, 1266: stringType, 2950: stringType,
	// their arrays
	1000: Array(boolType, ','),
	1016: Array(numberType, ','), 1005: Array(numberType, ','), 1007: Array(numberType, ','), 1028: Array(numberType, ','),
	1021: Array(numberType, ','), 1022: Array(numberType, ','), 1231: Array(numberType, ','),
	199: Array(jsonType, ','), 3807: Array(jsonType, ','),
	1115: Array(timestampType, ','), 1185: Array(timestampTZ, ','),
	1001: Array(byteaType, ','),
	1002: Array(stringType, ','), 1003: Array(stringType, ','), 1009: Array(stringType, ','), 1014: Array(stringType, ','), 1015: Array(stringType, ','),
	1182: Array(stringType, ','), 1183: Array(stringType, ','), 1187: Array(stringType, ','), 1270: Array(stringType, ','), 2951: Array(stringType, ','),
}

// Builtin returns a type of PostgreSQL by its OID, nil if pg_type is needed to know it.
func Builtin(oid uint32) *Type { return builtin[oid] }
