package cli

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestErrorsDoNotRepeatThemselves(t *testing.T) {
	for message, want := range map[string]string{
		"docservice: unavailable: boxcarrpc: unavailable: draining": "unavailable: draining",
		"get 7: docservice: not found":                              "get 7: not found",
		`the id "x: x" is bad: docservice: invalid id`:              `the id "x: x" is bad: invalid id`,
		"boxcarrpc: unavailable: docservice: no such collection":    "unavailable: no such collection",
		"open docservice: no such file":                             "open docservice: no such file",
	} {
		require.Equal(t, want, tidy(message))
	}
}
