package parquet

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/format"

	"docstore/ingest/records"
)

// RowError is the error of a row that cannot be encoded; the next row can be read.
type RowError struct {
	Column string
	Err    error
}

func (e *RowError) Error() string { return fmt.Sprintf("column %s: %v", e.Column, e.Err) }

// Unwrap returns the cause.
func (e *RowError) Unwrap() error { return e.Err }

// encoder encodes rows by their schema. It is used by one goroutine.
type encoder struct {
	root    *node
	schema  []format.SchemaElement // of the leaves of the file
	leaves  []leaf                 // that are read
	columns [][]parquet.Value      // of each leaf, the values of the row that are to be encoded
	text    []byte
}

// leaf is a column that is read.
type leaf struct {
	index      int // in the file
	name       string
	repeated   bool // a row may have several values
	kind       parquet.Kind
	length     int // of a value of type FIXED_LEN_BYTE_ARRAY
	repetition int // maximum repetition level
	definition int // maximum definition level
}

// kind is the JSON form of a node.
type kind int

const (
	scalar kind = iota
	object
	list      // its value is that of its only field
	stringMap // its only field is repeated and has a key and a value
)

// node is a column or a group of columns.
type node struct {
	name       string
	key        string // "name":, encoded
	omitNull   bool   // a null is omitted with its key
	kind       kind
	optional   bool
	repeated   bool
	definition int // maximum definition level
	repetition int // maximum repetition level
	first      int // its first leaf among those that are read
	leaves     int // number of its leaves
	fields     []*node
	text       bool                                              // a scalar that is a string
	write      func(dst []byte, v parquet.Value) ([]byte, error) // of a scalar
}

const (
	maxDepth = 64
	// maxTextBytes bounds the text of a row with long lists.
	maxTextBytes = 64 << 20
)

// newEncoder returns the encoder of the top-level columns that are wanted.
func newEncoder(root *parquet.Column, schema []format.SchemaElement, wanted func(name string) bool) (*encoder, error) {
	e := &encoder{root: &node{kind: object}}
	for _, element := range schema {
		if element.Type.Valid {
			e.schema = append(e.schema, element)
		}
	}
	for _, c := range root.Columns() {
		if !wanted(c.Name()) {
			continue
		}
		for _, f := range e.root.fields {
			if f.name == c.Name() {
				return nil, fmt.Errorf("duplicate column %q", f.name)
			}
		}
		f, err := e.node(c, 1)
		if err != nil {
			return nil, err
		}
		f.omitNull = f.name != "" && f.name[0] == '_'
		e.root.fields = append(e.root.fields, f)
	}
	e.columns = make([][]parquet.Value, len(e.leaves))
	return e, nil
}

func (e *encoder) node(c *parquet.Column, depth int) (*node, error) {
	if depth > maxDepth {
		return nil, fmt.Errorf("the schema is nested deeper than %d", maxDepth)
	}
	n := &node{
		name: c.Name(), optional: c.Optional(), repeated: c.Repeated(), first: len(e.leaves),
		definition: c.MaxDefinitionLevel(), repetition: c.MaxRepetitionLevel(),
	}
	if !utf8.ValidString(n.name) {
		return nil, fmt.Errorf("the name of column %q is not UTF-8", n.name)
	}
	n.key = string(appendString(nil, []byte(n.name))) + ":"
	if c.Leaf() {
		return n, e.leaf(n, c)
	}
	n.kind = object
	seen := map[string]bool{}
	for _, child := range c.Columns() {
		if seen[child.Name()] {
			return nil, fmt.Errorf("duplicate column %q in %q", child.Name(), n.name)
		}
		seen[child.Name()] = true
		f, err := e.node(child, depth+1)
		if err != nil {
			return nil, err
		}
		n.fields = append(n.fields, f)
	}
	n.leaves = len(e.leaves) - n.first
	if n.leaves == 0 {
		return nil, fmt.Errorf("group %q has no columns", n.name)
	}
	n.setLogical(c.Type().LogicalType())
	return n, nil
}

// leaf completes the node of a leaf.
func (e *encoder) leaf(n *node, c *parquet.Column) error {
	element := &e.schema[c.Index()]
	l := leaf{
		index: c.Index(), name: strings.Join(c.Path(), "."), repeated: n.repetition > 0, kind: parquet.Kind(element.Type.V),
		length: int(element.TypeLength.V), repetition: n.repetition, definition: n.definition,
	}
	logical := c.Type().LogicalType()
	if logical == nil {
		logical = &element.LogicalType // one that parquet-go does not know
	}
	_, null := logical.Value.(*format.NullType)
	switch {
	case l.kind < parquet.Boolean || l.kind > parquet.FixedLenByteArray:
		return fmt.Errorf("column %s is of the unknown type %d", l.name, l.kind)
	case l.kind == parquet.FixedLenByteArray && l.length <= 0:
		return fmt.Errorf("the values of column %s have %d bytes", l.name, l.length)
	case c.Type().Kind() != l.kind && !null:
		return fmt.Errorf("column %s is of type %s, and cannot be %s", l.name, l.kind, c.Type())
	}
	e.leaves = append(e.leaves, l)
	n.leaves = 1
	n.text, n.write = isText(logical), scalarWriter(l.kind, logical)
	return nil
}

// setLogical recognizes lists and maps, with the rules of the format for older files.
func (n *node) setLogical(logical *format.LogicalType) {
	if logical == nil || len(n.fields) != 1 || !n.fields[0].repeated {
		return
	}
	child := n.fields[0]
	switch logical.Value.(type) {
	case *format.ListType:
		n.kind = list
		if child.kind == object && len(child.fields) == 1 && !child.fields[0].repeated && child.name != "array" && child.name != n.name+"_tuple" {
			child.kind = list // it only adds a level: its field is the element
		}
	case *format.MapType:
		if child.kind != object || len(child.fields) != 2 {
			return
		}
		n.kind = list
		if key := child.fields[0]; key.text && !key.optional && !key.repeated {
			n.kind = stringMap
		}
	}
}

// errLevels: the values of a row do not match the schema.
var errLevels = errors.New("the levels of the values do not match the schema")

// encode returns the JSON of the row in columns, valid until the next call.
func (e *encoder) encode() ([]byte, error) {
	var err error
	if e.text, err = e.fields(e.text[:0], e.root); err != nil {
		return nil, err
	}
	for _, rest := range e.columns {
		if len(rest) > 0 {
			return nil, errLevels
		}
	}
	return e.text, nil
}

// fields appends an object of the node's fields.
func (e *encoder) fields(dst []byte, n *node) (_ []byte, err error) {
	dst = append(dst, '{')
	start := len(dst)
	for _, f := range n.fields {
		if f.omitNull && e.isNull(f) {
			e.drop(f)
			continue
		}
		if len(dst) > start {
			dst = append(dst, ',')
		}
		dst = append(dst, f.key...)
		if dst, err = e.value(dst, f); err != nil {
			return nil, err
		}
	}
	return append(dst, '}'), nil
}

// isNull reports whether the next value of an optional node is null, or of a repeated one
// missing.
func (e *encoder) isNull(n *node) bool {
	return (n.optional || n.repeated) && len(e.columns[n.first]) > 0 && e.columns[n.first][0].DefinitionLevel() < n.definition
}

// drop removes the next value of each leaf of a node.
func (e *encoder) drop(n *node) {
	for i := n.first; i < n.first+n.leaves; i++ {
		if len(e.columns[i]) > 0 {
			e.columns[i] = e.columns[i][1:]
		}
	}
}

// value appends the next value of a node.
func (e *encoder) value(dst []byte, n *node) ([]byte, error) {
	switch {
	case len(e.columns[n.first]) == 0:
		return nil, errLevels
	case n.repeated:
		return e.elements(dst, '[', n, ']', e.element)
	case e.isNull(n):
		e.drop(n)
		return append(dst, "null"...), nil
	}
	return e.element(dst, n)
}

// element appends a value that is neither null nor repeated.
func (e *encoder) element(dst []byte, n *node) ([]byte, error) {
	switch n.kind {
	case scalar:
		values := e.columns[n.first]
		if len(values) == 0 {
			return nil, errLevels
		}
		e.columns[n.first] = values[1:]
		if values[0].IsNull() {
			return nil, errLevels
		}
		dst, err := n.write(dst, values[0])
		if err != nil {
			return nil, &RowError{n.name, err}
		}
		return dst, nil
	case list:
		return e.value(dst, n.fields[0])
	case stringMap:
		return e.elements(dst, '{', n.fields[0], '}', e.entry)
	}
	return e.fields(dst, n)
}

// entry appends a key and a value of a map.
func (e *encoder) entry(dst []byte, n *node) ([]byte, error) {
	dst, err := e.value(dst, n.fields[0])
	if err != nil {
		return nil, err
	}
	return e.value(append(dst, ':'), n.fields[1])
}

// elements appends the values of a repeated node between two characters.
func (e *encoder) elements(dst []byte, left byte, n *node, right byte, one func([]byte, *node) ([]byte, error)) (_ []byte, err error) {
	dst = append(dst, left)
	if len(e.columns[n.first]) == 0 {
		return nil, errLevels
	}
	if e.isNull(n) {
		e.drop(n)
		return append(dst, right), nil
	}
	for {
		if dst, err = one(dst, n); err != nil {
			return nil, err
		}
		rest := e.columns[n.first]
		switch {
		case len(rest) == 0 || rest[0].RepetitionLevel() != n.repetition:
			return append(dst, right), nil
		case len(dst) > maxTextBytes:
			return nil, &RowError{n.name, fmt.Errorf("the row has more than %d bytes", maxTextBytes)}
		}
		dst = append(dst, ',')
	}
}

func isText(logical *format.LogicalType) bool {
	switch logical.Value.(type) {
	case *format.StringType, *format.EnumType:
		return true
	}
	return false
}

// scalarWriter returns the function that encodes the values of a column.
func scalarWriter(kind parquet.Kind, logical *format.LogicalType) func(dst []byte, v parquet.Value) ([]byte, error) {
	switch l := logical.Value.(type) {
	case *format.StringType, *format.EnumType:
		return writeText
	case *format.JsonType:
		return writeJSON
	case *format.UUIDType:
		return writeUUID
	case *format.DateType:
		return func(dst []byte, v parquet.Value) ([]byte, error) {
			return appendTime(dst, time.Unix(int64(v.Int32())*86400, 0).UTC(), `"2006-01-02"`)
		}
	case *format.TimestampType:
		return timestampWriter(l)
	case *format.TimeType:
		return timeWriter(kind, l)
	case *format.DecimalType:
		return decimalWriter(kind, int(l.Scale))
	case *format.IntType:
		if !l.IsSigned {
			return unsignedWriter(kind)
		}
	case *format.Float16Type:
		return writeFloat16
	case *format.NullType:
		return func([]byte, parquet.Value) ([]byte, error) {
			return nil, errors.New("a column of the type UNKNOWN has a value")
		}
	}
	switch kind {
	case parquet.Boolean:
		return func(dst []byte, v parquet.Value) ([]byte, error) { return strconv.AppendBool(dst, v.Boolean()), nil }
	case parquet.Int32:
		return func(dst []byte, v parquet.Value) ([]byte, error) {
			return strconv.AppendInt(dst, int64(v.Int32()), 10), nil
		}
	case parquet.Int64:
		return func(dst []byte, v parquet.Value) ([]byte, error) { return strconv.AppendInt(dst, v.Int64(), 10), nil }
	case parquet.Int96:
		return writeInt96
	case parquet.Float:
		return func(dst []byte, v parquet.Value) ([]byte, error) {
			return appendFloat(dst, float64(v.Float()), 32), nil
		}
	case parquet.Double:
		return func(dst []byte, v parquet.Value) ([]byte, error) { return appendFloat(dst, v.Double(), 64), nil }
	}
	return func(dst []byte, v parquet.Value) ([]byte, error) {
		dst = base64.StdEncoding.AppendEncode(append(dst, '"'), v.ByteArray())
		return append(dst, '"'), nil
	}
}

func unsignedWriter(kind parquet.Kind) func([]byte, parquet.Value) ([]byte, error) {
	if kind == parquet.Int32 {
		return func(dst []byte, v parquet.Value) ([]byte, error) {
			return strconv.AppendUint(dst, uint64(v.Uint32()), 10), nil
		}
	}
	return func(dst []byte, v parquet.Value) ([]byte, error) { return strconv.AppendUint(dst, v.Uint64(), 10), nil }
}

func writeFloat16(dst []byte, v parquet.Value) ([]byte, error) {
	b := v.ByteArray()
	if len(b) != 2 {
		return nil, fmt.Errorf("a float16 has %d bytes", len(b))
	}
	return appendFloat(dst, float16(binary.LittleEndian.Uint16(b)), 32), nil
}

func writeText(dst []byte, v parquet.Value) ([]byte, error) {
	text := v.ByteArray()
	if !utf8.Valid(text) {
		return nil, errors.New("the string is not UTF-8")
	}
	return appendString(dst, text), nil
}

func writeJSON(dst []byte, v parquet.Value) ([]byte, error) {
	text := v.ByteArray()
	if !json.Valid(text) {
		return nil, errors.New("the value is not JSON")
	}
	return append(dst, text...), nil
}

func writeUUID(dst []byte, v parquet.Value) ([]byte, error) {
	b := v.ByteArray()
	if len(b) != 16 {
		return nil, fmt.Errorf("a UUID has %d bytes", len(b))
	}
	return fmt.Appendf(dst, `"%x-%x-%x-%x-%x"`, b[:4], b[4:6], b[6:8], b[8:10], b[10:]), nil
}

// unitOf returns the unit of a time and the digits behind its seconds.
func unitOf(unit format.TimeUnit) (perSecond int64, digits string) {
	switch unit.Value.(type) {
	case *format.MilliSeconds:
		return 1e3, ".000"
	case *format.MicroSeconds:
		return 1e6, ".000000"
	}
	return 1e9, ".000000000"
}

func timestampWriter(t *format.TimestampType) func([]byte, parquet.Value) ([]byte, error) {
	perSecond, digits := unitOf(t.Unit)
	layout := `"2006-01-02T15:04:05` + digits
	if t.IsAdjustedToUTC {
		layout += "Z"
	}
	layout += `"`
	return func(dst []byte, v parquet.Value) ([]byte, error) {
		seconds := floorDiv(v.Int64(), perSecond)
		at := time.Unix(seconds, (v.Int64()-seconds*perSecond)*(1e9/perSecond)).UTC()
		return appendTime(dst, at, layout)
	}
}

// appendTime refuses years that RFC 3339 does not have.
func appendTime(dst []byte, at time.Time, layout string) ([]byte, error) {
	if year := at.Year(); year < 0 || year > 9999 {
		return nil, fmt.Errorf("the year %d is not from 0 to 9999", year)
	}
	return at.AppendFormat(dst, layout), nil
}

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

func timeWriter(kind parquet.Kind, t *format.TimeType) func([]byte, parquet.Value) ([]byte, error) {
	perSecond, digits := unitOf(t.Unit)
	return func(dst []byte, v parquet.Value) ([]byte, error) {
		n := v.Int64()
		if kind == parquet.Int32 {
			n = int64(v.Int32())
		}
		if n < 0 || n >= 86400*perSecond {
			return nil, fmt.Errorf("%d is not a time of day", n)
		}
		return time.Unix(n/perSecond, n%perSecond*(1e9/perSecond)).UTC().AppendFormat(dst, `"15:04:05`+digits+`"`), nil
	}
}

// writeInt96 encodes a timestamp of older programs: nanoseconds of a Julian day.
func writeInt96(dst []byte, v parquet.Value) ([]byte, error) {
	const julianUnixEpoch = 2440588
	n := v.Int96()
	nanos := int64(n[1])<<32 | int64(n[0])
	at := time.Unix((int64(n[2])-julianUnixEpoch)*86400, 0).UTC().Add(time.Duration(nanos))
	return appendTime(dst, at, `"2006-01-02T15:04:05.000000000Z"`)
}

// maxDecimalBytes bounds the size of a decimal: precision 76 has 32 bytes.
const maxDecimalBytes = 64

func decimalWriter(kind parquet.Kind, scale int) func([]byte, parquet.Value) ([]byte, error) {
	return func(dst []byte, v parquet.Value) ([]byte, error) {
		var digits string
		switch kind {
		case parquet.Int32:
			digits = strconv.FormatInt(int64(v.Int32()), 10)
		case parquet.Int64:
			digits = strconv.FormatInt(v.Int64(), 10)
		default:
			b := v.ByteArray()
			if len(b) == 0 || len(b) > maxDecimalBytes {
				return nil, fmt.Errorf("a decimal has %d bytes", len(b))
			}
			n := new(big.Int).SetBytes(b)
			if b[0] >= 0x80 { // two's complement
				n.Sub(n, new(big.Int).Lsh(big.NewInt(1), uint(8*len(b))))
			}
			digits = n.String()
		}
		return appendDecimal(dst, digits, scale)
	}
}

// appendDecimal appends an integer divided by ten to the power of scale.
func appendDecimal(dst []byte, digits string, scale int) ([]byte, error) {
	if scale < 0 || scale > 8*maxDecimalBytes {
		return nil, fmt.Errorf("a decimal has the scale %d", scale)
	}
	if digits[0] == '-' {
		dst, digits = append(dst, '-'), digits[1:]
	}
	if scale == 0 {
		return append(dst, digits...), nil
	}
	for len(digits) <= scale {
		digits = "0" + digits
	}
	dst = append(dst, digits[:len(digits)-scale]...)
	return append(append(dst, '.'), digits[len(digits)-scale:]...), nil
}

func float16(bits uint16) float64 {
	sign, exponent, fraction := 1.0, int(bits>>10&0x1f), float64(bits&0x3ff)
	if bits>>15 == 1 {
		sign = -1
	}
	switch exponent {
	case 0:
		return sign * math.Ldexp(fraction, -24)
	case 0x1f:
		if fraction != 0 {
			return math.NaN()
		}
		return sign * math.Inf(1)
	}
	return sign * math.Ldexp(1024+fraction, exponent-25)
}

func appendFloat(dst []byte, f float64, bits int) []byte {
	switch {
	case math.IsNaN(f):
		return append(dst, "null"...)
	case math.IsInf(f, 1):
		return append(dst, `"Infinity"`...)
	case math.IsInf(f, -1):
		return append(dst, `"-Infinity"`...)
	}
	return strconv.AppendFloat(dst, f, 'g', -1, bits)
}

const hexDigits = "0123456789abcdef"

// appendString appends a JSON string.
func appendString(dst, s []byte) []byte {
	dst = append(dst, '"')
	for {
		end := records.PlainEnd(s, 0)
		dst = append(dst, s[:end]...)
		if end == len(s) {
			return append(dst, '"')
		}
		switch c := s[end]; c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\n':
			dst = append(dst, '\\', 'n')
		case '\r':
			dst = append(dst, '\\', 'r')
		case '\t':
			dst = append(dst, '\\', 't')
		default:
			dst = append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		}
		s = s[end+1:]
	}
}
