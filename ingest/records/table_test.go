package records

import (
	"encoding/json"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"

	"docstore/internal/testseed"
)

func TestTable(t *testing.T) {
	const names = "id,title,_expires,_delete\n"
	for _, test := range []struct{ name, rows, want string }{
		{"a row", "17,Cook,,\n", `{"id":"17","title":"Cook"}`},
		{"no newline at the end", "17,Cook,,", `{"id":"17","title":"Cook"}`},
		{"quotes", "\"1,\"\"7\",\"two\nlines\",,\n", `{"id":"1,\"7","title":"two\nlines"}`},
		{"characters that HTML minds", "17,<&>,,\n", `{"id":"17","title":"<&>"}`},
		{"empty cells", ",,,\n", `{"id":"","title":""}`},
		{"expires", "17,,2030-01-01T00:00:00Z,\n", `{"id":"17","title":"","_expires":"2030-01-01T00:00:00Z"}`},
		{"delete", "17,,,true\n", `{"id":"17","title":"","_delete":true}`},
		{"no delete", "17,,,false\n", `{"id":"17","title":"","_delete":false}`},
		{"delete what", "17,,,yes\n", `{"id":"17","title":"","_delete":"yes"}`},
		{"short row", "17,Cook\n", `!the row has 2 cells, and there are 4 columns`},
		{"long row", "17,Cook,,,5\n", `!the row has 5 cells, and there are 4 columns`},
		{"stray quote", "17,5\" disk,,\n", `!line 2, column 5: bare " in non-quoted-field`},
		{"not UTF-8", "17,\xff,,\n", `!the cell in "title": not UTF-8; if the text is in another encoding, give it with the option encoding`},
		{"large", "17," + strings.Repeat("x", testLimit) + ",,\n", "!the record is longer than the limit of 1048576 bytes"},
	} {
		t.Run(test.name, func(t *testing.T) {
			want := []string{test.want}
			rows := test.rows
			if strings.HasSuffix(rows, "\n") { // the rows after it are read in any case
				rows += "18,Baker,,\n"
				want = append(want, `{"id":"18","title":"Baker"}`)
			}
			require.Equal(t, want, texts(t, open(t, strings.NewReader(names+rows), "in.csv", FormatAuto)))
		})
	}
}

func TestTableNames(t *testing.T) {
	for _, test := range []struct{ name, table, want string }{
		{"semicolons", "id;b\n1;2\n", `line 1: no id: there is no column "id" among ["id;b"]; the cells seem to be separated by ";": set the delimiter to it`},
		{"tabs", "id\tb\n1\t2\n", `line 1: no id: there is no column "id" among ["id\tb"]; the cells seem to be separated by "\t": set the delimiter to it`},
		{"one column", "a\n1\n", `line 1: no id: there is no column "id" among ["a"]`},
		{"no id", "a,b\n1,2\n", `line 1: no id: there is no column "id" among ["a" "b"]`},
		{"twice", "id,a,a\n1,2,3\n", `line 1: columns 2 and 3 are both named "a": give the names with the option columns`},
		{"no name", "\r\nid,,x,\n1,2,3,4\n", `line 2: column 2 has no name, column 4 has no name: give the names with the option columns`},
		{"not UTF-8", "id,\xff\n1,2\n", `line 1: the name of column 2: not UTF-8; if the text is in another encoding, give it with the option encoding`},
		{"stray quote", "id,\"a\"b\"\n", `line 1: column 6: extraneous or missing " in quoted-field`},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := open(t, strings.NewReader(test.table), "in.csv", FormatAuto).Next()
			require.EqualError(t, err, test.want)
		})
	}
	require.Equal(t, []string{`{"_id_base64":"/w=="}`}, texts(t, open(t, strings.NewReader("_id_base64\n/w==\n"), "in.csv", FormatAuto)))
}

// TestCellWithoutEnd: rows merged by a missing quote must not be skipped as one invalid
// row.
func TestCellWithoutEnd(t *testing.T) {
	for _, table := range []string{"id,x\n1,\"a\n2,b\n3,c\n", "id,x\n1,\"a\n2,b\n3,\"c\n"} {
		_, err := open(t, strings.NewReader(table), "in.csv", FormatAuto).Next()
		require.EqualError(t, err, `line 2: a cell that begins in this row does not end: extraneous or missing " in quoted-field`)
	}
}

// TestColumns: the option names the columns instead of the first row, which need not exist.
func TestColumns(t *testing.T) {
	for _, test := range []struct {
		name, table string
		options     Options
		want        []string
		problem     string
	}{
		{"instead of the first row", "id,a,a,\n1,2,3,4\n", Options{Columns: []string{"id", "a", "b", "c"}}, []string{`{"id":"1","a":"2","b":"3","c":"4"}`}, ""},
		{"no first row", "1,2\n3\n", Options{Columns: []string{"id", "a"}, NoHeader: true}, []string{`{"id":"1","a":"2"}`, "!the row has 1 cells, and there are 2 columns"}, ""},
		{"empty", "", Options{Columns: []string{"id", "a"}, NoHeader: true}, nil, ""},
		{"too few", "id,a,a\n", Options{Columns: []string{"id", "a"}}, nil, "line 1: the first row has 3 cells, and the option columns names 2"},
		{"no id", "1,2\n", Options{Columns: []string{"a", "b"}, NoHeader: true}, nil, `no id: there is no column "id" among ["a" "b"]`},
	} {
		t.Run(test.name, func(t *testing.T) {
			s, err := Open(strings.NewReader(test.table), "in", FormatCSV, testLimit, &test.options)
			require.NoError(t, err)
			if test.problem != "" {
				_, err := s.Next()
				require.EqualError(t, err, test.problem)
				return
			}
			require.Equal(t, test.want, texts(t, s))
		})
	}
	require.EqualError(t, CheckColumns([]string{"a", "", "a"}), `column 2 has no name, columns 1 and 3 are both named "a"`)
}

func TestTableOfPlainFields(t *testing.T) {
	s, err := Open(strings.NewReader("key,_delete\n1,true\n2,\n"), "in.csv", FormatAuto, testLimit, &Options{IDField: "key", PlainFields: true})
	require.NoError(t, err)
	require.Equal(t, []string{`{"key":"1","_delete":"true"}`, `{"key":"2","_delete":""}`}, texts(t, s))
}

func TestTableNumbersAndEnds(t *testing.T) {
	const table = "id,x\n1,\"a\nb\"\n\n2,c\n"
	all := readAll(t, open(t, strings.NewReader(table), "in.csv", FormatAuto))
	require.Equal(t, []int64{2, 5}, []int64{all[0].Number, all[1].Number})
	require.Equal(t, []int64{int64(strings.Index(table, "\n\n") + 1), int64(len(table))}, []int64{all[0].End, all[1].End})
}

// TestLinesOfCarriageReturns: the first row decides how rows end.
func TestLinesOfCarriageReturns(t *testing.T) {
	const short = "!the row has 1 cells, and there are 2 columns"
	for _, test := range []struct {
		name, table string
		want        []string
	}{
		{"returns", "id,x\r1,a\r2,b\r", []string{`{"id":"1","x":"a"}`, `{"id":"2","x":"b"}`}},
		{"no end", "id,x\r1,a\r2,b", []string{`{"id":"1","x":"a"}`, `{"id":"2","x":"b"}`}},
		{"blank lines", "\r\rid,x\r\r1,a\r", []string{`{"id":"1","x":"a"}`}},
		{"quoted", "id,x\r1,\"a\r\"\"\r\nb\"\r2,b\r", []string{`{"id":"1","x":"a\r\"\nb"}`, `{"id":"2","x":"b"}`}},
		{"names with a return", "id,\"x\ry\"\r1,a\r", []string{`{"id":"1","x\ry":"a"}`}},
		{"invalid quotes", "id,x\r1,a\"b,\"c\r2,b\r3,\"c\"d,\"\r4,d\r",
			[]string{`!line 2, column 4: bare " in non-quoted-field`, `{"id":"2","x":"b"}`, `!line 4, column 5: extraneous or missing " in quoted-field`, `{"id":"4","x":"d"}`}},
		{"newlines", "id,x\n1,a\rb\n2,b\n", []string{`{"id":"1","x":"a\rb"}`, `{"id":"2","x":"b"}`}},
		{"both", "id,x\r\n1,\"a\r\nb\"\r\n2,b\rc\r\n", []string{`{"id":"1","x":"a\nb"}`, `{"id":"2","x":"b\rc"}`}},
		{"mixed", "id,x\r1\r2,b\n3,c\r\n", []string{short, `{"id":"2","x":"b"}`, `{"id":"3","x":"c"}`}},
	} {
		t.Run(test.name, func(t *testing.T) {
			for _, in := range []io.Reader{strings.NewReader(test.table), iotest.OneByteReader(strings.NewReader(test.table))} {
				require.Equal(t, test.want, texts(t, open(t, in, "in.csv", FormatAuto)))
			}
		})
	}
}

// TestRandomTables writes tables of random cells and reads them back, with each end of rows.
func TestRandomTables(t *testing.T) {
	random := testseed.Rand(t)
	alphabet := []string{"a", "é", `"`, ",", "→", "\n", "\r", "\t", " ", "\\", "<", "\u2028", "\x00"}
	for range 100 {
		end := []string{"\n", "\r\n", "\r"}[random.IntN(3)]
		comma := []rune{',', '→', '«'}[random.IntN(3)]
		var text strings.Builder
		write := func(cells ...string) {
			for i, cell := range cells {
				if i > 0 {
					text.WriteRune(comma)
				}
				if strings.ContainsAny(cell, "\"\r\n"+string(comma)) || random.IntN(4) == 0 {
					cell = `"` + strings.ReplaceAll(cell, `"`, `""`) + `"`
				}
				text.WriteString(cell)
			}
			text.WriteString(end)
		}
		write("id", "a b", `"`)
		var want [][]string
		for range random.IntN(20) {
			row := []string{"x", "", ""}
			for i := range row {
				for range random.IntN(8) {
					row[i] += alphabet[random.IntN(len(alphabet))]
				}
			}
			want = append(want, row)
			write(row...)
		}
		s, err := Open(strings.NewReader(text.String()), "in", FormatCSV, testLimit, &Options{Delimiter: comma})
		require.NoError(t, err)
		for _, row := range want {
			record, err := s.Next()
			require.NoError(t, err)
			var got map[string]string
			require.NoError(t, json.Unmarshal(record.Text, &got))
			for i := range row {
				row[i] = strings.ReplaceAll(row[i], "\r\n", "\n")
			}
			require.Equal(t, map[string]string{"id": row[0], "a b": row[1], `"`: row[2]}, got)
		}
		_, err = s.Next()
		require.ErrorIs(t, err, io.EOF)
		require.True(t, s.AtEnd())
		require.NoError(t, s.Close())
	}
}
