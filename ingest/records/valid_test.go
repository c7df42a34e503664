package records

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

func FuzzValid(f *testing.F) {
	for _, text := range []string{``, ` {"a":[1,-2.5e+3,"\u00e9\"",true,null]} `, `{}x`, `[`, `"`, "\xff", `01`, "\"\x00\"", "\"\xff\""} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		require.Equal(t, json.Valid(text), Valid(text))
	})
}
