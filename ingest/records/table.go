package records

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"docstore/internal/eof"
)

// table reads the rows of a table as records. The first row has the names of the columns;
// cells are quoted as in RFC 4180. A row ends with "\n" or "\r\n", or with "\r" if the first one
// does. A line break "\r\n" within a cell becomes "\n".
type table struct {
	in      *bufio.Reader // read by rows, which uses it directly because its buffer is large enough
	ahead   *limiter
	rows    *csv.Reader
	limit   int
	options Options
	columns []column

	text    bytes.Buffer
	encoder *json.Encoder // into text
}

// column is a column of the table.
type column struct {
	name    string
	key     string // the field name in the record, with its colon
	control bool
	typed   bool // see Options.TypedCells
}

func newTable(in *bufio.Reader, format Format, limit int, options *Options) *table {
	t := &table{limit: limit, options: options.withDefaults()}
	comma := ','
	switch {
	case format == FormatTSV:
		comma = '\t'
	case t.options.Delimiter != 0:
		comma = t.options.Delimiter
	}
	t.ahead = &limiter{in: &lineEnds{in: in, comma: string(comma)}, limit: limit}
	t.in = bufio.NewReaderSize(t.ahead, readBufferBytes)
	t.rows = csv.NewReader(t.in)
	t.rows.Comma, t.rows.ReuseRecord = comma, true
	t.encoder = json.NewEncoder(&t.text)
	t.encoder.SetEscapeHTML(false)
	return t
}

func (t *table) Next() (Record, error) {
	if t.columns == nil {
		if err := t.readNames(); err != nil {
			return Record{}, err
		}
	}
	cells, err := t.rows.Read()
	record := Record{End: t.rows.InputOffset(), Newline: true}
	t.ahead.taken = record.End
	var problem *csv.ParseError
	switch {
	case errors.As(err, &problem) && endless(problem):
		return Record{}, fmt.Errorf("a cell that begins in the row of line %d does not end: %w", problem.StartLine, problem.Err)
	case errors.As(err, &problem):
		record.Number = int64(problem.StartLine)
		record.Problem = t.explain(problem, cells)
		return record, nil
	case err != nil:
		return Record{}, err
	}
	line, _ := t.rows.FieldPos(0)
	record.Number = int64(line)
	record.Text, record.Problem = t.object(cells)
	return record, nil
}

// endless reports whether a missing quote may have merged several rows into one cell.
func endless(problem *csv.ParseError) bool {
	return errors.Is(problem, csv.ErrQuote) && problem.Line > problem.StartLine
}

func (t *table) explain(problem *csv.ParseError, cells []string) error {
	if errors.Is(problem, csv.ErrFieldCount) {
		return fmt.Errorf("the row has %d cells, the first row has %d", len(cells), len(t.columns))
	}
	return fmt.Errorf("line %d, column %d: %w", problem.Line, problem.Column, problem.Err)
}

// readNames reads the first row.
func (t *table) readNames() error {
	names, err := t.rows.Read()
	if err != nil {
		return err
	}
	columns := make([]column, len(names))
	for i, name := range names {
		if slices.Contains(names[:i], name) {
			return fmt.Errorf("duplicate column %q", name)
		}
		t.text.Reset()
		if err := t.encode(name); err != nil {
			return fmt.Errorf("the name of column %d: %w", i+1, err)
		}
		columns[i] = column{name: name, key: t.text.String() + ":", control: !t.options.PlainFields && isControl(name)}
		columns[i].typed = t.options.TypedCells && !columns[i].control && name != t.options.IDField
	}
	if t.options.Template == nil && !slices.Contains(names, t.options.IDField) && !slices.Contains(names, id64Field) {
		return fmt.Errorf("no id: there is no column %q among %q%s", t.options.IDField, names, delimiterHint(names))
	}
	t.columns = columns
	return nil
}

// delimiterHint returns advice if the first row is one cell with the delimiter of another table.
func delimiterHint(names []string) string {
	if len(names) == 1 {
		if i := strings.IndexAny(names[0], ";\t|,"); i >= 0 {
			return fmt.Sprintf("; the cells seem to be separated by %q: set the delimiter to it", names[0][i:i+1])
		}
	}
	return ""
}

// object encodes a row as JSON.
func (t *table) object(cells []string) ([]byte, error) {
	t.text.Reset()
	t.text.WriteByte('{')
	for i, cell := range cells {
		c := &t.columns[i]
		if c.control && cell == "" {
			continue
		}
		if t.text.Len() > 1 {
			t.text.WriteByte(',')
		}
		t.text.WriteString(c.key)
		switch {
		case c.control && (cell == "true" || cell == "false"), c.typed && isTyped(cell):
			t.text.WriteString(cell)
			continue
		case c.typed && cell == "":
			t.text.WriteString("null")
			continue
		}
		if err := t.encode(cell); err != nil {
			return nil, fmt.Errorf("the cell in %q: %w", c.name, err)
		}
	}
	t.text.WriteByte('}')
	if t.text.Len() > t.limit {
		return nil, tooLong(t.limit)
	}
	return t.text.Bytes(), nil
}

// isTyped reports whether a cell is a JSON number or literal.
func isTyped(cell string) bool {
	switch cell {
	case "true", "false", "null":
		return true
	case "":
		return false
	}
	if c := cell[0]; c != '-' && (c < '0' || c > '9') {
		return false
	}
	s := scanner{data: []byte(cell)}
	return s.number() == nil && s.at == len(cell)
}

// encode appends a JSON string to the text.
func (t *table) encode(s string) error {
	if !utf8.ValidString(s) {
		return errors.New("not UTF-8")
	}
	err := t.encoder.Encode(s)
	t.text.Truncate(t.text.Len() - 1) // the encoder's newline
	return err
}

func (t *table) Waiting() bool {
	buffered, _ := t.in.Peek(t.in.Buffered()) // within the buffer: no error
	return bytes.IndexByte(buffered, '\n') >= 0
}

func (t *table) AtEnd() bool {
	_, err := t.in.Peek(1)
	return eof.Is(err)
}
