package records

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTemplates(t *testing.T) {
	const document = `{"a":{"b":"x","c.d":1,"n":-7},"k":"é\n","f":1.5,"t":true,"l":[1],"dash":"p-q","end":"x-","u\u0041":"esc"}`
	for _, test := range []struct{ template, want string }{
		{"{a.b}", "x"},
		{"{a.n}", "-7"},
		{"doc-{a.b}-{k}!", "doc-x-é\n!"},
		{"{f}/{a.n}", "1.5/-7"},
		{"{uA}", "esc"},
		{"x{dash}", "xp-q"},
		{"{k}-{dash}", "é\n-p-q"},
		{"{f}", `!the id 1.5 in "f" is a number other than a plain integer: write it as a string`},
		{"{a}", `!the id in "a" is neither a string nor a number`},
		{"{t}", `!the id in "t" is neither a string nor a number`},
		{"{a.x}", `!no id: there is no field "a.x"`},
		{"{a.b.c}", `!not a JSON object`},
		{"{l.b}", `!not a JSON object`},
		{"{dash}-{k}", `!the value in "dash" contains "-", or ends with its beginning, and it separates the value from the next field`},
		{"{end}--{k}", `!the value in "end" contains "--", or ends with its beginning, and it separates the value from the next field`},
	} {
		template, err := ParseTemplate(test.template)
		require.NoError(t, err)
		entry, err := NewParser(&Options{Template: template, MaxIDBytes: 100}).Parse([]byte(document))
		if problem, bad := strings.CutPrefix(test.want, "!"); bad {
			require.EqualError(t, err, problem, test.template)
			continue
		}
		require.NoError(t, err, test.template)
		require.Equal(t, test.want, string(entry.ID))
		require.Equal(t, document, string(entry.Document))
	}
	path, err := ParsePath("a.b")
	require.NoError(t, err)
	_, err = NewParser(&Options{Template: path, MaxIDBytes: 3}).Parse([]byte(`{"a":{"b":"long"}}`))
	require.ErrorContains(t, err, "has 4 bytes; the limit is 3")
	_, err = NewParser(&Options{Template: path}).Parse([]byte(`{"a":{"b":""}}`))
	require.ErrorContains(t, err, "is empty")
	_, err = NewParser(&Options{Template: path}).Parse([]byte(`{"a":{"b":"1","b":"2"}}`))
	require.EqualError(t, err, `duplicate field "a.b"`)
	entry, err := NewParser(&Options{Template: path}).Parse([]byte(`{"_id_base64":"/w==","_delete":true}`))
	require.NoError(t, err)
	require.Equal(t, "\xff", string(entry.ID))
}

func TestBadTemplates(t *testing.T) {
	for text, want := range map[string]string{
		"":                         "must have fields in braces",
		"a":                        "must have fields in braces",
		"{":                        "a { without a }",
		"{a{b}":                    "a { without a }",
		"a}":                       "a } without a {",
		"{a}}":                     "a } without a {",
		"{}":                       "is not the path of a field",
		"{a..b}":                   "is not the path of a field",
		"{a}{b}":                   "no text between two fields",
		strings.Repeat("{a}-", 20): "at most 16 parts",
	} {
		_, err := ParseTemplate(text)
		require.ErrorContains(t, err, want, text)
	}
	_, err := ParsePath("a.")
	require.ErrorContains(t, err, "is not the path of a field")
}

func TestFields(t *testing.T) {
	const document = ` { "id" : "1", "a":{"x": 1}, "b\u0031":[2] ,"c":"\u00e9"} `
	for _, test := range []struct {
		fields Fields
		want   string
	}{
		{Fields{Keep: []string{"id", "b1"}}, `{"id":"1","b\u0031":[2]}`},
		{Fields{Drop: []string{"a", "missing"}}, `{"id":"1","b\u0031":[2],"c":"\u00e9"}`},
		{Fields{Keep: []string{"missing"}}, `{}`},
		{Fields{Rename: map[string]string{"a": "b\"", "b1": "a"}}, `{"id":"1","b\"":{"x": 1},"a":[2],"c":"\u00e9"}`},
		{Fields{Drop: []string{"c"}, Rename: map[string]string{"a": "c"}}, `{"id":"1","c":{"x": 1},"b\u0031":[2]}`},
	} {
		require.NoError(t, test.fields.Check())
		require.False(t, test.fields.None())
		got, err := test.fields.Apply([]byte(document))
		require.NoError(t, err)
		require.Equal(t, test.want, string(got))
		require.True(t, json.Valid(got))
	}
	rename := Fields{Rename: map[string]string{"a": "c"}}
	_, err := rename.Apply([]byte(document))
	require.EqualError(t, err, `duplicate field "c"`)
	for _, text := range []string{"[]", "1", "", `{"a"`, `{"a":1,`, `{"a":1 "b"}`, `{"\ud800":1}`} {
		_, err := rename.Apply([]byte(text))
		require.Error(t, err, text)
	}
}

func TestContradictingFields(t *testing.T) {
	for want, fields := range map[string]Fields{
		"are kept and dropped":             {Keep: []string{"a"}, Drop: []string{"b"}},
		"name of a field is empty":         {Drop: []string{""}},
		"name of a renamed field is empty": {Rename: map[string]string{"a": ""}},
		`two fields are renamed to "c"`:    {Rename: map[string]string{"a": "c", "b": "c"}},
		`"a" is renamed, but is not kept`:  {Rename: map[string]string{"a": "c"}, Drop: []string{"a"}},
		`"b" is renamed, but is not kept`:  {Rename: map[string]string{"b": "c"}, Keep: []string{"a"}},
	} {
		require.ErrorContains(t, fields.Check(), want)
	}
	require.True(t, (&Fields{}).None())
	require.NoError(t, (&Fields{}).Check())
}

func TestTypedCells(t *testing.T) {
	const table = "id;a;b;_delete\n007;1;true;\n1.5;-2.5e3;;\n8;007;nil;true\n9;null;1.;false\n"
	s, err := Open(strings.NewReader(table), "in", FormatCSV, testLimit, &Options{Delimiter: ';', TypedCells: true})
	require.NoError(t, err)
	require.Equal(t, []string{
		`{"id":"007","a":1,"b":true}`, `{"id":"1.5","a":-2.5e3,"b":null}`, `{"id":"8","a":"007","b":"nil","_delete":true}`,
		`{"id":"9","a":null,"b":"1.","_delete":false}`,
	}, texts(t, s))
	for _, bad := range []rune{0, '"', '\n', '\r', 0xfffd} {
		require.Error(t, CheckDelimiter(bad))
	}
	require.NoError(t, CheckDelimiter('|'))
}

// TestUses: fields that are not used have no effect on the entry.
func TestUses(t *testing.T) {
	template, err := ParseTemplate("{a.x}-{b}")
	require.NoError(t, err)
	values := map[string]string{
		"id": `"1"`, "a": `{"x":2}`, "b": `3`, "c": `4`, "_expires": `"2030-01-01T00:00:00Z"`, "_id_base64": `"/w=="`, "_delete": "false",
	}
	total := 0
	for _, options := range []*Options{nil, {IDField: "b"}, {Template: template}, {PlainFields: true}, {PlainFields: true, Template: template}} {
		for _, fields := range []Fields{{}, {Keep: []string{"c"}}, {Keep: []string{"id", "a"}}, {Drop: []string{"b", "id"}}, {Drop: []string{"_expires", "a"}}} {
			entry := func(without string) (got [2]string, expires bool) {
				var text []string
				for _, name := range slices.Sorted(maps.Keys(values)) {
					if name != without {
						text = append(text, fmt.Sprintf("%q:%s", name, values[name]))
					}
				}
				e, err := NewParser(options).Parse([]byte("{" + strings.Join(text, ",") + "}"))
				require.NoError(t, err)
				document, err := fields.Apply(e.Document)
				require.NoError(t, err)
				return [2]string{string(e.ID), string(document)}, !e.Expires.IsZero()
			}
			all, expires := entry("")
			unused := 0
			for name := range values {
				if fields.Uses(name, options) {
					continue
				}
				unused++
				got, gotExpires := entry(name)
				require.Equal(t, all, got, "%s %v %v", name, options, fields)
				require.Equal(t, expires, gotExpires)
			}
			require.False(t, fields.None() && unused > 0, "%v", options)
			total += unused
		}
	}
	require.Greater(t, total, 20)
}

// FuzzFields: a change of a valid object is a valid object with the fields that it must have.
func FuzzFields(f *testing.F) {
	f.Add([]byte(`{"id":"1","a":{"b":[1,"x"]},"c":null}`))
	fields := Fields{Drop: []string{"c"}, Rename: map[string]string{"a": "z"}}
	f.Fuzz(func(t *testing.T, document []byte) {
		if _, err := NewParser(nil).Parse(document); err != nil {
			return
		}
		changed, err := fields.Apply(document)
		if err != nil {
			return
		}
		var before, after map[string]any
		require.NoError(t, json.Unmarshal(document, &before))
		require.NoError(t, json.Unmarshal(changed, &after))
		require.NotContains(t, after, "c")
		require.NotContains(t, after, "a")
		if _, has := before["a"]; has {
			require.Equal(t, before["a"], after["z"])
		}
	})
}

// TestMissingFields: a column of a Parquet file that is not read is not missing.
func TestMissingFields(t *testing.T) {
	f := Fields{Drop: []string{"a", "b", "c"}}
	require.NoError(t, f.Check())
	require.False(t, f.Uses("a", nil))
	require.Empty(t, f.Missing(), "there is no document")
	_, err := f.Apply([]byte(`{"id":"1","b":2}`))
	require.NoError(t, err)
	require.Equal(t, []string{"c"}, f.Missing())
}
