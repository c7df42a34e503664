package records

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestTimeField(t *testing.T) {
	at := time.Date(2026, 11, 27, 21, 30, 0, 250e6, time.UTC)
	for document, want := range map[string]time.Time{
		`{"meta":{"at":"2026-11-27T21:30:00.25Z"}}`:                  at,
		`{"a":1,"meta":{"b":2,"at":"2026-11-27T22:30:00.25+01:00"}}`: at,
		`{"meta":{"at":1795815000.25}}`:                              at,
		`{"meta":{"at":1795815000250}}`:                              at,
		`{"meta":{"\u0061t":1795815000250}}`:                         at,
		`{"meta":{"at":0}}`:                                          {},
		`{"meta":{"at":-5}}`:                                         {},
		`{"meta":{"at":1e300}}`:                                      {},
		`{"meta":{"at":"yesterday"}}`:                                {},
		`{"meta":{"at":""}}`:                                         {},
		`{"meta":{"at":null}}`:                                       {},
		`{"meta":{"at":{}}}`:                                         {},
		`{"meta":7}`:                                                 {},
		`{"at":1795815000}`:                                          {},
		`[]`:                                                         {},
		`{"meta":{"at":`:                                             {},
		"":                                                           {},
	} {
		f, err := ParseTimeField("meta.at")
		require.NoError(t, err)
		require.WithinDuration(t, want, f.Of([]byte(document)), time.Microsecond, document)
	}
	_, err := ParseTimeField("a..b")
	require.ErrorContains(t, err, `"a..b" is not the path of a field`)
}

func FuzzTimeField(f *testing.F) {
	f.Add([]byte(`{"meta":{"at":1795815000.25}}`))
	f.Add([]byte(`{"meta":{"at":"2026-11-27T21:30:00Z"}}`))
	field, err := ParseTimeField("meta.at")
	require.NoError(f, err)
	f.Fuzz(func(t *testing.T, document []byte) {
		if at := field.Of(document); !at.IsZero() {
			require.True(t, Valid(document), "%s of %q", at, document)
		}
	})
}
