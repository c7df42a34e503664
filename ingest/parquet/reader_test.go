package parquet

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/parquet-go/parquet-go"
	"github.com/stretchr/testify/require"

	"docstore/internal/checksum"
	"docstore/internal/testseed"
)

// readAll returns the rows of a file, or problems after "!".
func readAll(t testing.TB, file []byte, skip int64, o Options) (rows []string, err error) {
	t.Helper()
	r, err := Open(bytes.NewReader(file), int64(len(file)), o)
	if err != nil {
		return nil, err
	}
	if err := r.Skip(skip); err != nil {
		return nil, err
	}
	for before := int64(-1); ; {
		text, err := r.Next()
		var bad *RowError
		switch {
		case errors.Is(err, io.EOF):
			return rows, nil
		case errors.As(err, &bad):
			rows = append(rows, "!"+err.Error())
		case err != nil:
			return rows, err
		default:
			rows = append(rows, string(text))
		}
		row, _ := r.Row()
		require.Equal(t, skip+int64(len(rows)), row)
		require.Greater(t, r.Offset(), before)
		before = r.Offset()
	}
}

// written writes rows in row groups of some size.
func written[T any](t testing.TB, rows []T, perGroup int, options ...parquet.WriterOption) []byte {
	t.Helper()
	var file bytes.Buffer
	w := parquet.NewGenericWriter[T](&file, options...)
	for len(rows) > 0 {
		n := min(len(rows), perGroup)
		_, err := w.Write(rows[:n])
		require.NoError(t, err)
		require.NoError(t, w.Flush())
		rows = rows[n:]
	}
	require.NoError(t, w.Close())
	return file.Bytes()
}

func TestValues(t *testing.T) {
	type inner struct {
		A int32   `parquet:"a"`
		B *string `parquet:"b,optional"`
	}
	type row struct {
		ID        string            `parquet:"id"`
		Flag      bool              `parquet:"flag"`
		Unsigned  uint64            `parquet:"unsigned"`
		Small     int8              `parquet:"small"`
		Float     float32           `parquet:"float"`
		Double    float64           `parquet:"double"`
		Bytes     []byte            `parquet:"bytes"`
		Null      *int64            `parquet:"null,optional"`
		Omitted   *string           `parquet:"_expires,optional"`
		Day       int32             `parquet:"day,date"`
		At        time.Time         `parquet:"at,timestamp(microsecond)"`
		Price     int64             `parquet:"price,decimal(2:18)"`
		UUID      [16]byte          `parquet:"uuid,uuid"`
		JSON      string            `parquet:"json,json"`
		Repeated  []int32           `parquet:"repeated"`
		List      []string          `parquet:"list,list"`
		Structs   []inner           `parquet:"structs,list"`
		Matrix    [][]int32         `parquet:"matrix,list"`
		Map       map[string]int32  `parquet:"map"`
		Numbers   map[int32]string  `parquet:"numbers"`
		Group     inner             `parquet:"group"`
		Pointer   *inner            `parquet:"pointer,optional"`
		MapOfList map[string][]bool `parquet:"mapoflist"`
	}
	b := "x\"\n\x01é"
	rows := []row{
		{ID: "1", Flag: true, Unsigned: math.MaxUint64, Small: -3, Float: 1.5, Double: math.NaN(), Bytes: []byte{0xff}, Day: -1,
			At: time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC), Price: -5, UUID: [16]byte{1, 15: 2}, JSON: `{"a": [1]}`,
			Repeated: []int32{1, 2}, List: []string{"a", ""}, Structs: []inner{{1, &b}, {2, nil}}, Matrix: [][]int32{{1}, {2, 3}},
			Map: map[string]int32{"k\"": 1}, Numbers: map[int32]string{7: "seven"}, Group: inner{3, &b}, Pointer: &inner{4, nil},
			MapOfList: map[string][]bool{"a": {true, false}}},
		{ID: "2", Double: math.Inf(-1), JSON: "null", At: time.Unix(0, 0).UTC()},
	}
	got, err := readAll(t, written(t, rows, 10), 0, Options{})
	require.NoError(t, err)
	require.Equal(t, []string{
		`{"id":"1","flag":true,"unsigned":18446744073709551615,"small":-3,"float":1.5,"double":null,"bytes":"/w==","null":null,` +
			`"day":"1969-12-31","at":"2026-01-02T03:04:05.000006Z","price":-0.05,"uuid":"01000000-0000-0000-0000-000000000002","json":{"a": [1]},` +
			`"repeated":[1,2],"list":["a",""],"structs":[{"a":1,"b":"x\"\n\u0001é"},{"a":2,"b":null}],"matrix":[[1],[2,3]],` +
			`"map":{"k\"":1},"numbers":[{"key":7,"value":"seven"}],"group":{"a":3,"b":"x\"\n\u0001é"},"pointer":{"a":4,"b":null},` +
			`"mapoflist":{"a":[true,false]}}`,
		`{"id":"2","flag":false,"unsigned":0,"small":0,"float":0,"double":"-Infinity","bytes":"","null":null,` +
			`"day":"1970-01-01","at":"1970-01-01T00:00:00.000000Z","price":0.00,"uuid":"00000000-0000-0000-0000-000000000000","json":null,` +
			`"repeated":[],"list":[],"structs":[],"matrix":[],"map":{},"numbers":[],"group":{"a":0,"b":null},"pointer":null,"mapoflist":{}}`,
	}, got)
	for _, text := range got {
		require.True(t, json.Valid([]byte(text)), text)
	}
}

func TestProblemsOfRows(t *testing.T) {
	type row struct {
		ID   string `parquet:"id"`
		JSON string `parquet:"json,json"`
	}
	got, err := readAll(t, written(t, []row{{"a", "1"}, {"\xff", "2"}, {"c", "{"}, {"d", "4"}}, 2), 0, Options{})
	require.NoError(t, err)
	require.Equal(t, []string{`{"id":"a","json":1}`, "!column id: the string is not UTF-8", "!column json: the value is not JSON", `{"id":"d","json":4}`}, got)
}

// testRow is a row of the random files.
type testRow struct {
	ID   int64    `parquet:"id"`
	Text string   `parquet:"text,dict"`
	Tags []string `parquet:"tags,list"`
	Note *string  `parquet:"note,optional"`
}

// TestRandomFiles reads files of random shape from a random row, and compares with encoding/json.
func TestRandomFiles(t *testing.T) {
	random := testseed.Rand(t)
	for range 20 {
		rows := make([]testRow, random.IntN(3000))
		var want []string
		for i := range rows {
			rows[i] = testRow{ID: int64(i), Text: strings.Repeat("x", random.IntN(50)), Tags: []string{}}
			for range random.IntN(4) {
				rows[i].Tags = append(rows[i].Tags, fmt.Sprint(random.IntN(100)))
			}
			if random.IntN(2) == 0 {
				note := fmt.Sprint("note ", i)
				rows[i].Note = &note
			}
			text, err := json.Marshal(map[string]any{"id": rows[i].ID, "text": rows[i].Text, "tags": rows[i].Tags, "note": rows[i].Note})
			require.NoError(t, err)
			want = append(want, string(text))
		}
		codec := []parquet.WriterOption{parquet.Compression(&parquet.Snappy), parquet.Compression(&parquet.Zstd), parquet.Compression(&parquet.Uncompressed)}[random.IntN(3)]
		file := written(t, rows, 1+random.IntN(1000), codec, parquet.PageBufferSize(1+random.IntN(10_000)), parquet.DataPageVersion(1+random.IntN(2)))
		skip := random.IntN(len(rows) + 1)
		got, err := readAll(t, file, int64(skip), Options{})
		require.NoError(t, err)
		require.Len(t, got, len(rows)-skip)
		for i := range got {
			require.JSONEq(t, want[skip+i], got[i])
		}
		// Some columns, none included.
		wanted := map[string]bool{}
		for _, name := range []string{"id", "text", "tags", "note"} {
			wanted[name] = random.IntN(2) == 0
		}
		some, err := readAll(t, file, int64(skip), Options{Columns: func(name string) bool { return wanted[name] }})
		require.NoError(t, err)
		require.Len(t, some, len(got))
		for i := range some {
			var all map[string]any
			require.NoError(t, json.Unmarshal([]byte(got[i]), &all))
			maps.DeleteFunc(all, func(name string, _ any) bool { return !wanted[name] })
			text, err := json.Marshal(all)
			require.NoError(t, err)
			require.JSONEq(t, string(text), some[i])
		}
	}
}

// forbidden is a file whose reads must not concern a range.
type forbidden struct {
	*bytes.Reader
	span
}

func (f *forbidden) ReadAt(p []byte, offset int64) (int, error) {
	if offset < f.to && f.from < offset+int64(len(p)) {
		return 0, fmt.Errorf("a read of %d bytes at %d, of the range from %d to %d", len(p), offset, f.from, f.to)
	}
	return f.Reader.ReadAt(p, offset)
}

// TestColumnsThatAreNotWanted: they are not read, and need no memory.
func TestColumnsThatAreNotWanted(t *testing.T) {
	type row struct {
		ID   int64
		Text string
		Last int64
	}
	rows := make([]row, 2000)
	for i := range rows {
		rows[i] = row{int64(i), strings.Repeat(fmt.Sprint(i), 200), -int64(i)}
	}
	file := written(t, rows, 1000, parquet.Compression(&parquet.Uncompressed))
	opened, err := parquet.OpenFile(bytes.NewReader(file), int64(len(file)))
	require.NoError(t, err)
	large := chunkSpan(&opened.Metadata().RowGroups[0].Columns[1].MetaData)
	require.Greater(t, large.to-large.from, int64(mergeGap))

	in := &forbidden{bytes.NewReader(file), large}
	r, err := Open(in, int64(len(file)), Options{MaxBytes: MinMaxBytes / 8, Columns: func(name string) bool { return name != "Text" }})
	require.NoError(t, err)
	for i := range rows {
		text, err := r.Next()
		require.NoError(t, err)
		require.Equal(t, fmt.Sprintf(`{"ID":%d,"Last":%d}`, i, -i), string(text))
	}
	_, err = r.Next()
	require.ErrorIs(t, err, io.EOF)

	r, err = Open(in, int64(len(file)), Options{})
	require.NoError(t, err)
	_, err = r.Next()
	require.ErrorContains(t, err, "row group 0: reading ")
}

// TestManyValuesInARow: the number of values of a row is limited, and the next rows can be read.
func TestManyValuesInARow(t *testing.T) {
	rows := []testRow{{ID: 1}, {ID: 2}, {ID: 3, Tags: []string{"a", "b"}}, {ID: 4}}
	for range 1000 {
		rows[1].Tags = append(rows[1].Tags, "x")
	}
	rows[3].Tags = rows[1].Tags
	file := written(t, rows, 4, parquet.PageBufferSize(300))
	for limit, want := range map[int][]int64{999: {1, 3}, 1000: {1, 2, 3, 4}} {
		r, err := Open(bytes.NewReader(file), int64(len(file)), Options{})
		require.NoError(t, err)
		for i := range r.columns {
			r.columns[i].maxValues = limit
		}
		var got []int64
		for range rows {
			text, err := r.Next()
			var bad *RowError
			if errors.As(err, &bad) {
				require.EqualError(t, err, "column tags.list.element: the row has more than 999 values")
				continue
			}
			require.NoError(t, err)
			var row testRow
			require.NoError(t, json.Unmarshal(text, &row))
			require.Len(t, row.Tags, len(rows[row.ID-1].Tags))
			got = append(got, row.ID)
		}
		require.Equal(t, want, got)
		_, err = r.Next()
		require.ErrorIs(t, err, io.EOF)
	}
}

// TestFooter: the footer identifies a file, also a long one.
func TestFooter(t *testing.T) {
	footerIn := func(rows []testRow, perGroup int) (bytesAndCRC [2]uint32) {
		file := written(t, rows, perGroup)
		r, err := Open(bytes.NewReader(file), int64(len(file)), Options{})
		require.NoError(t, err)
		bytesAndCRC[0], bytesAndCRC[1] = r.Footer()
		require.Equal(t, checksum.Of(file[len(file)-int(bytesAndCRC[0]):]), bytesAndCRC[1])
		return bytesAndCRC
	}
	one := footerIn([]testRow{{ID: 1}}, 1)
	require.Equal(t, one, footerIn([]testRow{{ID: 1}}, 1))
	require.NotEqual(t, one, footerIn([]testRow{{ID: 2}}, 1), "the statistics")
	require.Greater(t, footerIn(make([]testRow, 1000), 1)[0], uint32(footerAhead))
}

func TestLimits(t *testing.T) {
	rows := make([]testRow, 20_000)
	for i := range rows {
		rows[i].Text = strings.Repeat(fmt.Sprint(i), 20)
	}
	file := written(t, rows, 20_000)
	_, err := readAll(t, file, 0, Options{MaxBytes: MinMaxBytes})
	require.ErrorContains(t, err, "row group 0: it needs ")
	require.ErrorContains(t, err, "bytes of memory, more than the limit of 1048576; raise the limit, or write smaller row groups")
	got, err := readAll(t, written(t, rows, 1000), 0, Options{MaxBytes: MinMaxBytes})
	require.NoError(t, err)
	require.Len(t, got, len(rows))
	_, err = readAll(t, file, 20_001, Options{})
	require.ErrorContains(t, err, "row 20001 is not among the 20000 rows of the file")
}

func TestNoParquetFile(t *testing.T) {
	file := written(t, []testRow{{}}, 1)
	for _, test := range []struct {
		file string
		want string
	}{
		{"PAR1", "4 bytes are too few for a Parquet file"},
		{string(file[:len(file)-1]), "the file does not end as a Parquet file"},
		{string(file[:len(file)-4]) + "PARE", "encrypted"},
		{string(file[:len(file)-8]) + "\xff\xff\xff\x7fPAR1", "the metadata has 2147483647 bytes, more than the file"},
		{string(file[:len(file)-8]) + "\x01\x00\x00\x00PAR1", "not a valid Parquet file"},
	} {
		_, err := readAll(t, []byte(test.file), 0, Options{})
		require.ErrorContains(t, err, test.want)
	}
}

// FuzzReader: a damaged file is an error or has rows that are JSON; memory is bounded.
func FuzzReader(f *testing.F) {
	note := "x"
	for _, version := range []int{1, 2} {
		f.Add(written(f, []testRow{{1, "a", []string{"b", "c"}, &note}, {2, "d", nil, nil}}, 1, parquet.DataPageVersion(version)))
	}
	f.Fuzz(func(t *testing.T, file []byte) {
		for _, columns := range []func(string) bool{nil, func(name string) bool { return name > "m" }} {
			r, err := Open(bytes.NewReader(file), int64(len(file)), Options{MaxBytes: MinMaxBytes, Columns: columns})
			for n := 0; err == nil && n < 100; n++ {
				var text []byte
				text, err = r.Next()
				var bad *RowError
				if errors.As(err, &bad) {
					err = nil
				} else if err == nil {
					require.True(t, json.Valid(text), "%q", text)
				}
			}
		}
	})
}

func BenchmarkNext(b *testing.B) {
	type posting struct {
		ID, Title, Company, City, Text string
		Salary                         int64
		Remote                         bool
		Posted                         time.Time
		Tags                           []string `parquet:",list"`
	}
	rows := make([]posting, 20_000)
	for i := range rows {
		rows[i] = posting{ID: fmt.Sprint(i), Title: "Lift operator", Company: "Company " + fmt.Sprint(i%100), City: "Springfield",
			Text: strings.Repeat(fmt.Sprintf("word%d ", i%7), 100), Salary: int64(i), Posted: time.Unix(int64(i), 0), Tags: []string{"a", "b"}}
	}
	file := written(b, rows, 10_000, parquet.Compression(&parquet.Snappy))
	var r *Reader
	bytesRead := 0
	for b.Loop() {
		if r == nil {
			var err error
			r, err = Open(bytes.NewReader(file), int64(len(file)), Options{})
			require.NoError(b, err)
		}
		text, err := r.Next()
		if errors.Is(err, io.EOF) {
			r = nil
			continue
		}
		require.NoError(b, err)
		bytesRead += len(text)
	}
	b.SetBytes(int64(bytesRead / b.N))
}
