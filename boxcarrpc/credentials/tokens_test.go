package credentials

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestBearerToken(t *testing.T) {
	for header, want := range map[string]string{
		"":                   "",
		"Bearer secret":      "secret",
		"bearer secret":      "secret",
		"BEARER   secret":    "secret",
		"Bearer":             "Bearer",
		"Digest secret":      "Digest secret",
		"Bearersecret":       "Bearersecret",
		"bearer Bearer one":  "Bearer one",
		"Basic bearer token": "Basic bearer token",
	} {
		require.Equal(t, want, BearerToken(header), header)
	}
}
