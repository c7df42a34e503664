package envelope_test

import (
	"bytes"
	"crypto/md5"
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/ingest"
	"docstore/ingest/envelope"
	"docstore/queue"
)

// show describes records: put ID DOCUMENT, delete ID, or invalid PROBLEM.
func show(records []ingest.Record) string {
	var lines []string
	for _, r := range records {
		switch {
		case r.Problem != nil:
			lines = append(lines, "invalid "+r.Problem.Error())
		case r.Delete:
			lines = append(lines, fmt.Sprintf("delete %s", r.ID))
		default:
			lines = append(lines, fmt.Sprintf("put %s %s", r.ID, r.Document))
		}
	}
	return strings.Join(lines, "; ")
}

func null(s string) []byte {
	if s == "null!" {
		return nil
	}
	return []byte(s)
}

func TestDecode(t *testing.T) {
	const null17 = `{"database":"shop","table":"jobs","pk.id":17}`
	maxwell := envelope.Decoder{Format: envelope.Maxwell, Table: "shop.jobs"}
	debezium := envelope.Decoder{Format: envelope.Debezium}
	plain := envelope.Decoder{Format: envelope.JSON}
	raw := envelope.Decoder{Format: envelope.Raw}
	document := envelope.Decoder{Format: envelope.JSON, IDInDocument: true}
	tests := []struct {
		name       string
		decoder    envelope.Decoder
		key, value string
		want       string
	}{
		{"document", plain, `17`, `{"title":"cook"}`, `put 17 {"title":"cook"}`},
		{"null value", plain, `17`, `null!`, `delete 17`},
		{"null as JSON is a document", plain, `17`, `null`, `put 17 null`},
		{"null key", plain, `null!`, `{}`, `invalid the message has no key, which is the id`},
		{"empty key", plain, ``, `{}`, `invalid the message has no key, which is the id`},
		{"empty value", plain, `17`, ``, `invalid the value is not JSON: unexpected end of JSON input`},
		{"invalid value", plain, `17`, `{"a":}`, `invalid the value is not JSON: invalid character '}' looking for beginning of value`},
		{"schema registry", plain, `17`, "\x00\x00\x00\x00\x07abc", "invalid the value is not JSON: it begins with a zero byte, " +
			"as Avro and Protobuf of a schema registry do; produce JSON, or convert the topic"},
		{"long id", plain, strings.Repeat("k", queue.MaxIDBytes+1), `{}`, `invalid the id has 1025 bytes, and at most 1024 are allowed`},
		{"id in document", document, `ignored`, `{"id":1}`, `put  {"id":1}`},
		{"null with the id in the document", document, `17`, `null!`,
			`invalid a null value has no document with an id; omit id=document if the key is the id`},
		{"raw", raw, `17`, "\xff", "put 17 \xff"},
		{"empty raw", raw, `17`, ``, `put 17 `},

		{"create", debezium, `{"id":17}`, `{"before":null,"after":{"id":17,"t":"é"},"op":"c"}`, `put 17 {"id":17,"t":"é"}`},
		{"snapshot", debezium, `{"id":17}`, `{"after":{"id":17},"op":"r"}`, `put 17 {"id":17}`},
		{"with schemas", debezium, `{"schema":{"payload":1},"payload":{"id":"a\u0062"}}`,
			` { "schema" : {"op":"x"} , "payload" : { "op" : "u" , "after" : {"n":[1,{"x":"}"}]} } } `, `put ab {"n":[1,{"x":"}"}]}`},
		{"key of one value", debezium, `"abc"`, `{"op":"d","before":{}}`, `delete abc`},
		{"composite key", debezium, `{"a":17,"b":"\u00e9<","c":true}`, `{"op":"c","after":{}}`, `put [17,"é<",true] {}`},
		{"columns payload and id", debezium, `{"payload":1,"id":2}`, `{"op":"d"}`, `delete [1,2]`},
		{"delete", debezium, `{"id":17}`, `{"op":"d","before":{"id":17},"after":null}`, `delete 17`},
		{"tombstone", debezium, `{"id":17}`, `null!`, `delete 17`},
		{"tombstone as JSON", debezium, `{"schema":null,"payload":{"id":17}}`, `{"schema":null,"payload":null}`, `delete 17`},
		{"message of the database", debezium, `{"prefix":"x"}`, `{"op":"m","message":{}}`, ``},
		{"truncate", debezium, `null!`, `{"op":"t"}`, `invalid the table was truncated, which cannot be applied document by document; ` +
			`append the deletes, then skip this event`},
		{"missing column", debezium, `{"id":17}`, `{"op":"u","after":{"id":17,"text":"__debezium_unavailable_value"}}`,
			`invalid the event lacks a column that did not change (__debezium_unavailable_value); set REPLICA IDENTITY FULL for the table`},
		{"no key", debezium, `null!`, `{"op":"c","after":{}}`, `invalid the message has no key`},
		{"empty key object", debezium, `{}`, `{"op":"d"}`, `invalid the key has no columns`},
		{"empty key text", debezium, `{"id":""}`, `{"op":"d"}`, `invalid the key is empty`},
		{"fraction", debezium, `{"id":1.5}`, `{"op":"d"}`, `invalid the key column "id" is neither a string nor an integer: 1.5`},
		{"null in the key", debezium, `{"id":null,"x":1}`, `{"op":"d"}`, `invalid the key column "id" is neither a string nor an integer: null`},
		{"no row", debezium, `{"id":1}`, `{"op":"c","after":null}`, `invalid the field "after" has no row`},
		{"no envelope", debezium, `{"id":1}`, `{"id":1,"title":"cook"}`,
			`invalid not an event of Debezium: the field "op" is not a string; rows without an envelope have format=json`},
		{"not an object", debezium, `{"id":1}`, `[]`, `invalid the value is not a JSON object`},
		{"payload not an object", debezium, `{"id":1}`, `{"payload":1}`, `invalid the payload is not a JSON object`},
		{"unknown operation", debezium, `{"id":1}`, `{"op":"x"}`, `invalid unknown operation "x" of Debezium`},
		{"invalid event", debezium, `{"id":1}`, `{"op":`, `invalid the value is not JSON: unexpected end of JSON input`},
		{"invalid key", debezium, `{"id"`, `{"op":"d"}`, `invalid the key is not JSON: unexpected end of JSON input`},

		{"insert", maxwell, null17, `{"type":"insert","data":{"id":17}}`, `put 17 {"id":17}`},
		{"bootstrap", maxwell, null17, `{"type":"bootstrap-insert","data":{"id":17}}`, `put 17 {"id":17}`},
		{"start of a bootstrap", maxwell, null17, `{"type":"bootstrap-start","data":{}}`, ``},
		{"update", maxwell, null17, `{"type":"update","data":{"id":17,"t":2},"old":{"t":1}}`, `put 17 {"id":17,"t":2}`},
		{"update of the key", maxwell, null17, `{"type":"update","data":{"id":17},"old":{"id":16}}`, `delete 16; put 17 {"id":17}`},
		{"update of a part of the key", maxwell, `{"database":"shop","table":"jobs","pk.a":1,"pk.b":"x"}`,
			`{"type":"update","data":{"a":1,"b":"x"},"old":{"b":"w"}}`, `delete [1,"w"]; put [1,"x"] {"a":1,"b":"x"}`},
		{"delete of Maxwell", maxwell, null17, `{"type":"delete","data":{"id":17}}`, `delete 17`},
		{"null of Maxwell", maxwell, null17, `null!`, `delete 17`},
		{"another table", maxwell, `{"database":"shop","table":"users","pk.id":17}`, `{"type":"delete"}`, ``},
		{"another database", maxwell, `{"database":"test","table":"jobs","pk.id":17}`, `{"type":"delete"}`, ``},
		{"schema change", maxwell, null17, `{"type":"table-alter"}`, ``},
		{"unknown type", maxwell, null17, `{"type":"upsert"}`, `invalid unknown type "upsert" of Maxwell`},
		{"no type", maxwell, null17, `{}`, `invalid not an event of Maxwell: the field "type" is not a string`},
		{"no data", maxwell, null17, `{"type":"insert"}`, `invalid the field "data" has no row`},
		{"no key columns", maxwell, `{"database":"shop","table":"jobs"}`, `{"type":"delete"}`, `invalid the key has no columns`},
		{"array key", maxwell, `["shop","jobs",[{"id":17}]]`, `{"type":"delete"}`,
			`invalid the key is not an object; set kafka_key_format=hash in Maxwell`},
		{"no key of Maxwell", maxwell, `null!`, `{"type":"delete"}`, `invalid the message has no key`},
		{"table not a string", maxwell, `{"database":"shop","table":5}`, `{}`, `invalid not a key of Maxwell: the field "table" is not a string`},
		{"old key invalid", maxwell, null17, `{"type":"update","data":{"id":17},"old":{"id":1.5}}`,
			`invalid the key column "id" is neither a string nor an integer: 1.5`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			require.NoError(t, test.decoder.Check())
			got := test.decoder.Append(nil, null(test.key), null(test.value))
			require.Equal(t, test.want, show(got))
			for _, r := range got {
				if r.Problem != nil {
					require.Equal(t, null(test.value), r.Document, "the text for the file of bad records")
				}
			}
		})
	}
}

// Debezium encodes its placeholder by the type of the column.
func TestUnavailableColumns(t *testing.T) {
	const text = "__debezium_unavailable_value"
	hash := md5.Sum([]byte(text)) // UUID.nameUUIDFromBytes
	hash[6], hash[8] = hash[6]&0x0f|0x30, hash[8]&0x3f|0x80
	uuid := fmt.Sprintf("%x-%x-%x-%x-%x", hash[:4], hash[4:6], hash[6:8], hash[8:10], hash[10:])
	numbers := strings.Trim(strings.Join(strings.Fields(fmt.Sprintf("%d", []byte(text))), ","), "[]")
	d := envelope.Decoder{Format: envelope.Debezium}
	show := func(value string) string {
		return show(d.Append(nil, []byte(`{"id":1}`), []byte(`{"op":"u","after":{"id":1,"x":`+value+`}}`)))
	}
	base64Text := base64.StdEncoding.EncodeToString([]byte(text))
	for _, value := range []string{
		`"` + text + `"`, `["` + text + `"]`, `{"` + text + `":"` + text + `"}`, `"` + base64Text + `"`, `["` + base64Text + `"]`,
		`"` + base64.RawURLEncoding.EncodeToString([]byte(text)) + `"`, fmt.Sprintf(`"%x"`, text), `["` + uuid + `"]`,
		"[" + numbers + "]", "[1],\"y\":[ " + strings.ReplaceAll(numbers, ",", " ,\t") + " ]", "[[" + numbers + "]]",
	} {
		require.Contains(t, show(value), "invalid the event lacks a column that did not change", value)
	}
	for _, value := range []string{
		"[" + numbers + ",1]", "[1," + numbers + "]", "[" + strings.TrimSuffix(numbers, ",101") + "]", "[]", "[95", `["95"]`, "[95,950]", `"AAEC"`,
		`"` + base64Text[:20] + `"`,
	} {
		require.NotContains(t, show(value), "lacks a column", value)
	}
}

func TestLargeDocumentIsInvalid(t *testing.T) {
	d := envelope.Decoder{Format: envelope.Raw}
	got := d.Append(nil, []byte("17"), make([]byte, queue.MaxDocumentBytes+1))
	require.Equal(t, "invalid the document has 16777217 bytes, and at most 16777216 are allowed", show(got))
	require.Nil(t, d.Append(nil, []byte("17"), make([]byte, queue.MaxDocumentBytes))[0].Problem)
}

func TestCheck(t *testing.T) {
	for _, test := range []struct {
		decoder envelope.Decoder
		want    string
	}{
		{envelope.Decoder{Format: "avro"}, `unknown format "avro", want json, raw, debezium or maxwell`},
		{envelope.Decoder{Format: envelope.Raw, IDInDocument: true}, "the id of format raw is the key of the message; it cannot be read from the document"},
		{envelope.Decoder{Format: envelope.Maxwell}, "format maxwell needs a table, DATABASE.TABLE, because a topic may have events of several"},
		{envelope.Decoder{Format: envelope.JSON, Table: "a.b"}, "format json has no table; a table selects events of format maxwell"},
	} {
		require.EqualError(t, test.decoder.Check(), test.want)
	}
}

// FuzzDecode checks that each message gives valid records, and that a delete or document of
// an event agrees with encoding/json.
func FuzzDecode(f *testing.F) {
	f.Add(uint8(0), []byte(`17`), []byte(`{"a":[1,2,{"b":"\""}]}`))
	f.Add(uint8(1), []byte(`17`), []byte("\xff"))
	f.Add(uint8(2), []byte(`{"schema":{},"payload":{"a":1,"b":"\u00e9"}}`), []byte(`{"payload":{"op":"c","after":{"x":"\\"}}}`))
	f.Add(uint8(2), []byte(`"k"`), []byte(`{"op":"d"}`))
	f.Add(uint8(3), []byte(`{"database":"a","table":"b","pk.x":1}`), []byte(`{"type":"update","data":{"x":1},"old":{"x":2}}`))
	decoders := []envelope.Decoder{
		{Format: envelope.JSON}, {Format: envelope.Raw}, {Format: envelope.Debezium}, {Format: envelope.Maxwell, Table: "a.b"},
	}
	f.Fuzz(func(t *testing.T, kind uint8, key, value []byte) {
		d := &decoders[int(kind)%len(decoders)]
		keyBefore, valueBefore := bytes.Clone(key), bytes.Clone(value)
		got := d.Append(nil, key, value)
		require.Equal(t, keyBefore, key)
		require.Equal(t, valueBefore, value)
		require.LessOrEqual(t, len(got), 2)
		for i, r := range got {
			if r.Problem != nil {
				require.Len(t, got, 1)
				require.Equal(t, value, r.Document)
				continue
			}
			require.NotEmpty(t, r.ID)
			require.LessOrEqual(t, len(r.ID), queue.MaxIDBytes)
			require.Equal(t, r.Delete, r.Document == nil)
			require.True(t, len(got) == 1 || r.Delete == (i == 0))
		}
	})
}
