package records

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Template makes an id of fields of a document: "{address.city}-{number}". The names of nested
// fields are separated by dots.
type Template struct{ parts []part }

// part is a field, or a literal text.
type part struct {
	path    []string // nil: a literal
	literal string
}

// maxTemplateParts bounds the number of parts of a template.
const maxTemplateParts = 16

// ParsePath returns the template of one field.
func ParsePath(path string) (*Template, error) {
	p, err := parsePath(path)
	if err != nil {
		return nil, err
	}
	return &Template{[]part{{path: p}}}, nil
}

func parsePath(path string) ([]string, error) {
	names := strings.Split(path, ".")
	if slices.Contains(names, "") {
		return nil, fmt.Errorf("%q is not the path of a field, such as address.city", path)
	}
	return names, nil
}

// ParseTemplate parses a template. It must have at least one field.
func ParseTemplate(text string) (*Template, error) {
	t := new(Template)
	fields := 0
	for rest := text; rest != ""; {
		literal, field, found := strings.Cut(rest, "{")
		if strings.Contains(literal, "}") {
			return nil, fmt.Errorf("%q has a } without a {", text)
		}
		if literal != "" {
			t.parts = append(t.parts, part{literal: literal})
		}
		if !found {
			break
		}
		name, behind, closed := strings.Cut(field, "}")
		if !closed || strings.Contains(name, "{") {
			return nil, fmt.Errorf("%q has a { without a }", text)
		}
		path, err := parsePath(name)
		if err != nil {
			return nil, err
		}
		if n := len(t.parts); n > 0 && t.parts[n-1].path != nil {
			return nil, fmt.Errorf("%q has no text between two fields: different documents could have the same id", text)
		}
		t.parts = append(t.parts, part{path: path})
		fields++
		rest = behind
	}
	if fields == 0 || len(t.parts) > maxTemplateParts {
		return nil, fmt.Errorf("%q must have fields in braces, such as {country}-{number}, and at most %d parts", text, maxTemplateParts)
	}
	return t, nil
}

// reads reports whether a top-level field is part of the id, or has one.
func (t *Template) reads(name string) bool {
	return slices.ContainsFunc(t.parts, func(p part) bool { return p.path != nil && p.path[0] == name })
}

// appendID appends the id of a valid JSON object.
func (t *Template) appendID(dst, object []byte) ([]byte, error) {
	for i, p := range t.parts {
		if p.path == nil {
			dst = append(dst, p.literal...)
			continue
		}
		value, err := find(object, p.path)
		if err != nil {
			return nil, err
		}
		start := len(dst)
		switch c := value[0]; {
		case c == '"':
			text, ok := parseString(value)
			if !ok {
				return nil, fmt.Errorf("the id in %q is not valid Unicode", strings.Join(p.path, "."))
			}
			dst = append(dst, text...)
		case c == '-' || c >= '0' && c <= '9':
			if len(t.parts) == 1 && (bytes.ContainsAny(value, ".eE") || string(value) == "-0") {
				return nil, fmt.Errorf("the id %.40s in %q is a number other than a plain integer: write it as a string", value, strings.Join(p.path, "."))
			}
			dst = append(dst, value...)
		default:
			return nil, fmt.Errorf("the id in %q is neither a string nor a number", strings.Join(p.path, "."))
		}
		// Otherwise {a}-{b} would give "x-y","z" and "x","y-z" the same id.
		if i+2 < len(t.parts) && strings.Index(string(dst[start:])+t.parts[i+1].literal, t.parts[i+1].literal) < len(dst)-start {
			return nil, fmt.Errorf("the value in %q contains %q, or ends with its beginning, and it separates the value from the next field", strings.Join(p.path, "."), t.parts[i+1].literal)
		}
	}
	return dst, nil
}

// find returns the value of a nested field.
func find(object []byte, path []string) ([]byte, error) {
	value := object
	for depth, name := range path {
		found := []byte(nil)
		err := forEachField(value, func(f field) error {
			if !f.is(name) {
				return nil
			}
			if found != nil {
				return &duplicateError{strings.Join(path[:depth+1], ".")}
			}
			found = f.value
			return nil
		})
		if err != nil {
			return nil, err
		}
		if found == nil {
			return nil, fmt.Errorf("no id: there is no field %q", strings.Join(path[:depth+1], "."))
		}
		value = found
	}
	return value, nil
}

// field is a field of an object, as written.
type field struct {
	name  []byte // inside of the quotes
	value []byte
}

// is reports whether the field has the name.
func (f field) is(name string) bool {
	if bytes.IndexByte(f.name, '\\') < 0 {
		return string(f.name) == name
	}
	unescaped, ok := unescape(nil, f.name)
	return ok && string(unescaped) == name
}

var errNoObject = errors.New("not a JSON object")

// forEachField calls f for the fields of an object.
func forEachField(object []byte, f func(field) error) error {
	s := scanner{data: object}
	s.skipBlanks()
	if s.at >= len(object) || object[s.at] != '{' {
		return errNoObject
	}
	s.at++
	if s.skipBlanks(); s.accept('}') {
		return nil
	}
	for {
		s.skipBlanks()
		name, err := s.name()
		if err != nil {
			return asProblem(err)
		}
		start := s.at
		if err := s.value(); err != nil {
			return asProblem(err)
		}
		if err := f(field{name, object[start:s.at]}); err != nil {
			return err
		}
		s.skipBlanks()
		if !s.accept(',') {
			break
		}
	}
	if !s.accept('}') {
		return asProblem(s.fail("a comma or }"))
	}
	return nil
}
