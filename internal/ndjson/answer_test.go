package ndjson

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAnswerLines(t *testing.T) {
	require.Equal(t, `{"id":"<17>","found":true,"document":{"a": 1}}`+"\n", string(AppendFound(nil, "<17>", []byte(`{"a": 1}`))))
	require.Equal(t, `{"id":"17","found":true,"document_base64":"ewp9"}`+"\n", string(AppendFound(nil, "17", []byte("{\n}"))))
	require.Equal(t, `{"id_base64":"/w==","found":true,"document":1}`+"\n", string(AppendFound(nil, "\xff", []byte("1"))))
	require.Equal(t, `{"id":"17","found":false}`+"\n", string(AppendNotFound(nil, "17")))
	require.Equal(t, `{"id":"17","found":false,"code":"internal","error":"\"why\""}`+"\n", string(AppendFailed(nil, "17", "internal", `"why"`)))
}

// FuzzAnswerLine: for any id and document the line is valid JSON, and both can be decoded
// from it unchanged.
func FuzzAnswerLine(f *testing.F) {
	f.Add([]byte("17"), []byte(`{"a":1}`))
	f.Add([]byte("\xff\x00"), []byte("\"\xff\""))
	f.Add([]byte("a\nb"), []byte("1\n"))
	f.Add([]byte("17"), []byte(" 5E555\t")) // valid JSON, but not a float64
	f.Fuzz(func(t *testing.T, id, document []byte) {
		line := AppendFound(nil, string(id), document)
		require.NotContains(t, string(line[:len(line)-1]), "\n")
		var got struct {
			ID             *string         `json:"id"`
			IDBase64       []byte          `json:"id_base64"`
			Document       json.RawMessage `json:"document"`
			DocumentBase64 *string         `json:"document_base64"`
		}
		require.NoError(t, json.Unmarshal(line, &got))
		if got.ID != nil {
			require.Equal(t, string(id), *got.ID)
		} else {
			require.Equal(t, id, got.IDBase64)
		}
		if got.DocumentBase64 != nil {
			b, err := base64.StdEncoding.DecodeString(*got.DocumentBase64)
			require.NoError(t, err)
			require.Equal(t, string(document), string(b))
		} else {
			require.Equal(t, strings.Trim(string(document), " \t\r"), string(got.Document))
		}
	})
}
