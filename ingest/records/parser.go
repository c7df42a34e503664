package records

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"
	"unicode/utf16"
	"unicode/utf8"
)

// Entry is the entry that a record requests. Its slices are parts of the parsed text, or
// separate if they had to be decoded, and are valid as long as the text.
type Entry struct {
	ID       []byte
	Document []byte    // nil with Delete
	Delete   bool      // delete the document
	Expires  time.Time // zero: never
}

// Options configure the parsing of records.
type Options struct {
	IDField string // the field that holds the id; the default is "id"
	// PlainFields disables control fields, for documents that contain such fields.
	PlainFields bool
	MaxIDBytes  int // maximum length of an id; 0: no limit
	// Template makes the id instead of IDField; nil: none.
	Template *Template
	Encoding Encoding
	// Delimiter separates the cells of csv; 0 is a comma.
	Delimiter rune
	// Columns names the columns of tables, instead of the first row; nil: it does.
	Columns []string
	// NoHeader says that tables have no row of names; it needs Columns.
	NoHeader bool
	// TypedCells makes the cells of tables numbers, true, false and null, if they are written
	// so, and null if they are empty; the column IDField stays a string.
	TypedCells bool
}

// CheckDelimiter returns an error if a character cannot separate cells.
func CheckDelimiter(r rune) error {
	if r == 0 || r == '"' || r == '\r' || r == '\n' || r == utf8.RuneError || !utf8.ValidRune(r) {
		return fmt.Errorf("%q cannot separate cells", r)
	}
	return nil
}

func (o *Options) withDefaults() Options {
	options := Options{}
	if o != nil {
		options = *o
	}
	if options.IDField == "" {
		options.IDField = "id"
	}
	return options
}

// reads reports whether a top-level field has a meaning for the parser.
func (o *Options) reads(name string) bool {
	if !o.PlainFields && isControl(name) {
		return true
	}
	if o.Template != nil {
		return o.Template.reads(name)
	}
	return name == o.IDField
}

// The control fields.
const (
	controlInitial = '_' // first byte of all of them

	deleteField     = "_delete"
	expiresField    = "_expires"
	documentField   = "_document"
	document64Field = "_document_base64"
	id64Field       = "_id_base64"
)

func isControl(name string) bool {
	switch name {
	case deleteField, expiresField, documentField, document64Field, id64Field:
		return true
	}
	return false
}

// Parser extracts entries from records. It is used by one goroutine.
type Parser struct {
	options Options
	scanner scanner
	initial [256]bool // first bytes of the names that matter, escaped or not

	// The values as written; nil if the field is missing.
	id, id64, deletes, expires, document, document64 []byte
	name                                             []byte // buffer for an unescaped name
}

// NewParser returns a parser; nil options select the defaults.
func NewParser(options *Options) *Parser {
	p := &Parser{options: options.withDefaults()}
	p.initial[p.options.IDField[0]] = true
	p.initial['\\'] = true
	p.initial[controlInitial] = !p.options.PlainFields || p.options.IDField[0] == controlInitial
	return p
}

// Parse parses the text of one record. The error describes the invalid part.
func (p *Parser) Parse(text []byte) (Entry, error) {
	p.id, p.id64, p.deletes, p.expires, p.document, p.document64 = nil, nil, nil, nil, nil, nil
	s := &p.scanner
	*s = scanner{data: text}
	s.skipBlanks()
	if s.at >= len(text) || text[s.at] != '{' {
		return Entry{}, notObject(s)
	}
	if err := s.object(p); err != nil {
		return Entry{}, asProblem(err)
	}
	if s.skipBlanks(); s.at < len(text) {
		err := asProblem(s.fail("the end of the record"))
		if text[s.at] == '{' {
			err = fmt.Errorf("%w; several objects in a line need the format %s", err, FormatJSON)
		}
		return Entry{}, err
	}
	return p.entry(text)
}

// duplicateError is the error of a field that occurs twice.
type duplicateError struct{ field string }

func (e *duplicateError) Error() string { return fmt.Sprintf("duplicate field %q", e.field) }

func asProblem(err error) error {
	var duplicate *duplicateError
	if errors.As(err, &duplicate) {
		return err
	}
	return fmt.Errorf("not JSON: %w", err)
}

// notObject distinguishes other JSON values from invalid JSON.
func notObject(s *scanner) error {
	err := s.value()
	if s.skipBlanks(); err == nil && s.at < len(s.data) {
		err = s.fail("the end of the record")
	}
	if err != nil {
		return asProblem(err)
	}
	return errors.New("not a JSON object")
}

// mayWant is a fast filter: it returns false for nearly all names that do not matter.
func (p *Parser) mayWant(name []byte) bool { return len(name) > 0 && p.initial[name[0]] }

// take records the values of the fields that matter.
func (p *Parser) take(name, value []byte) error {
	if bytes.IndexByte(name, '\\') >= 0 {
		unescaped, ok := unescape(p.name[:0], name)
		if !ok {
			return nil // not Unicode: not one of the names that matter
		}
		p.name, name = unescaped, unescaped
	}
	switch {
	case string(name) == p.options.IDField:
		return note(&p.id, name, value)
	case p.options.PlainFields:
		return nil
	case string(name) == deleteField:
		return note(&p.deletes, name, value)
	case string(name) == expiresField:
		return note(&p.expires, name, value)
	case string(name) == documentField:
		return note(&p.document, name, value)
	case string(name) == document64Field:
		return note(&p.document64, name, value)
	case string(name) == id64Field:
		return note(&p.id64, name, value)
	}
	return nil
}

func note(into *[]byte, name, value []byte) error {
	if *into != nil {
		return &duplicateError{string(name)}
	}
	*into = value
	return nil
}

func (p *Parser) entry(text []byte) (e Entry, err error) {
	switch {
	case p.id64 != nil:
		e.ID, err = p.parseID64()
	case p.options.Template != nil:
		if e.ID, err = p.options.Template.appendID(nil, text); err == nil {
			err = p.checkID("template", e.ID)
		}
	default:
		e.ID, err = p.parseID()
	}
	if err != nil {
		return Entry{}, err
	}
	if e.Delete, err = parseDelete(p.deletes); err != nil {
		return Entry{}, err
	}
	if e.Expires, err = parseExpires(p.expires); err != nil {
		return Entry{}, err
	}
	switch {
	case e.Delete:
	case p.document != nil && p.document64 != nil:
		return Entry{}, fmt.Errorf("%q and %q contradict each other", documentField, document64Field)
	case p.document != nil:
		e.Document = p.document
	case p.document64 == nil:
		e.Document = text
	default:
		if e.Document, err = decode64(document64Field, p.document64); err != nil {
			return Entry{}, err
		}
	}
	return e, nil
}

// parseID64 decodes an id that is not text; the id field is then a normal field.
func (p *Parser) parseID64() (id []byte, err error) {
	if id, err = decode64(id64Field, p.id64); err != nil {
		return nil, err
	}
	return id, p.checkID(id64Field, id)
}

func (p *Parser) checkID(field string, id []byte) error {
	if len(id) == 0 {
		return fmt.Errorf("the id in %q is empty", field)
	}
	if limit := p.options.MaxIDBytes; limit > 0 && len(id) > limit {
		return fmt.Errorf("the id in %q has %d bytes; the limit is %d", field, len(id), limit)
	}
	return nil
}

// decode64 decodes a base64 string; the result is not nil unless there is an error.
func decode64(field string, value []byte) ([]byte, error) {
	if len(value) >= 2 && value[0] == '"' {
		text, ok := value[1:len(value)-1], true
		if bytes.IndexByte(text, '\\') >= 0 { // for example \/, which some encoders write for /
			text, ok = unescape(nil, text)
		}
		decoded := make([]byte, base64.StdEncoding.DecodedLen(len(text)))
		if n, err := base64.StdEncoding.Decode(decoded, text); ok && err == nil {
			return decoded[:n], nil
		}
	}
	return nil, fmt.Errorf("%q is not a padded base64 string (RFC 4648)", field)
}

func (p *Parser) parseID() ([]byte, error) {
	field, value := p.options.IDField, p.id
	if value == nil {
		return nil, fmt.Errorf("no id: there is no field %q", field)
	}
	id := value
	switch c := value[0]; {
	case c == '"':
		var ok bool
		if id, ok = parseString(value); !ok {
			return nil, fmt.Errorf("the id in %q is not valid Unicode", field)
		}
	case c == '-' || c >= '0' && c <= '9':
		if bytes.ContainsAny(value, ".eE") || string(value) == "-0" {
			return nil, fmt.Errorf("the id %.40s in %q is a number other than a plain integer: write it as a string", value, field)
		}
	default:
		return nil, fmt.Errorf("the id in %q is neither a string nor an integer", field)
	}
	return id, p.checkID(field, id)
}

// parseString decodes a JSON string; ok is false if it is not Unicode. Replacement
// characters, as many parsers insert, would make two ids equal.
func parseString(value []byte) ([]byte, bool) {
	text := value[1 : len(value)-1]
	if bytes.IndexByte(text, '\\') >= 0 {
		var ok bool
		if text, ok = unescape(make([]byte, 0, len(text)), text); !ok {
			return nil, false
		}
	}
	return text, utf8.Valid(text)
}

func parseDelete(value []byte) (bool, error) {
	switch string(value) {
	case "", "false", "null":
		return false, nil
	case "true":
		return true, nil
	}
	return false, fmt.Errorf("%q is neither true nor false", deleteField)
}

func parseExpires(value []byte) (time.Time, error) {
	if len(value) == 0 || string(value) == "null" {
		return time.Time{}, nil
	}
	var text string
	var expires time.Time
	err := json.Unmarshal(value, &text)
	if err == nil {
		expires, err = time.Parse(time.RFC3339, text)
	}
	if err != nil || expires.Unix() <= 0 || expires.Unix() > math.MaxUint32 {
		return time.Time{}, fmt.Errorf("%.60s in %q is not an RFC 3339 time from 1970 to 2106, for example %q",
			value, expiresField, "2030-12-31T23:59:59Z")
	}
	return expires, nil
}

// unescape appends the decoded inside of a valid JSON string to dst. It returns false for
// an unpaired surrogate.
func unescape(dst, text []byte) ([]byte, bool) {
	for len(text) > 0 {
		if text[0] != '\\' {
			dst = append(dst, text[0])
			text = text[1:]
			continue
		}
		if text[1] != 'u' {
			dst = append(dst, simpleEscapes[strings.IndexByte(simpleEscapeNames, text[1])])
			text = text[2:]
			continue
		}
		r := hexRune(text[2:6])
		text = text[6:]
		if utf16.IsSurrogate(r) {
			if len(text) < 6 || text[0] != '\\' || text[1] != 'u' {
				return dst, false
			}
			if r = utf16.DecodeRune(r, hexRune(text[2:6])); r == utf8.RuneError {
				return dst, false
			}
			text = text[6:]
		}
		dst = utf8.AppendRune(dst, r)
	}
	return dst, true
}

const (
	simpleEscapeNames = `"\/bfnrt`
	simpleEscapes     = "\"\\/\b\f\n\r\t"
)

func hexRune(digits []byte) (r rune) {
	for _, c := range digits {
		switch {
		case c <= '9':
			r = r<<4 | rune(c-'0')
		default:
			r = r<<4 | rune(c|0x20-'a'+10)
		}
	}
	return r
}
