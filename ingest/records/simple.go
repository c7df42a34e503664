package records

import "bytes"

// SimpleID returns the id of a record whose first field is the id, written without escapes, unless
// another field may be a control field; else nil. It does not validate the record: if there is an
// id, Parse returns it with the text as the document, which does not expire, or an error. It takes
// a tenth of the time of Parse.
func (p *Parser) SimpleID(text []byte) []byte {
	if p.options.Template != nil {
		return nil
	}
	s := scanner{data: text}
	s.skipBlanks()
	if !s.accept('{') {
		return nil
	}
	s.skipBlanks()
	if !s.accept('"') || !bytes.HasPrefix(text[s.at:], []byte(p.options.IDField)) {
		return nil
	}
	s.at += len(p.options.IDField)
	if !s.accept('"') {
		return nil
	}
	if s.skipBlanks(); !s.accept(':') {
		return nil
	}
	s.skipBlanks()
	id := s.simpleValue()
	// The names of control fields begin with _, or with an escape.
	if len(id) == 0 || occursAfterQuote(text[s.at:], controlInitial) || occursAfterQuote(text[s.at:], '\\') {
		return nil
	}
	return id
}

// simpleValue returns a string without escapes, or a series of digits that is a whole value; else nil.
func (s *scanner) simpleValue() []byte {
	start := s.at
	if s.accept('"') {
		s.at = PlainEnd(s.data, s.at)
		if !s.accept('"') {
			return nil
		}
		return s.data[start+1 : s.at-1]
	}
	for s.at < len(s.data) && s.data[s.at] >= '0' && s.data[s.at] <= '9' {
		s.at++
	}
	if s.at == len(s.data) || s.data[s.at] != ',' && s.data[s.at] != '}' {
		return nil
	}
	return s.data[start:s.at]
}

// occursAfterQuote reports whether text has c behind a quote.
func occursAfterQuote(text []byte, c byte) bool {
	for {
		at := bytes.IndexByte(text, c)
		if at < 0 {
			return false
		}
		if at > 0 && text[at-1] == '"' {
			return true
		}
		text = text[at+1:]
	}
}
