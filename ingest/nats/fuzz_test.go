package nats

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzPosition: a cursor that is accepted is encoded and accepted again as the same position.
func FuzzPosition(f *testing.F) {
	f.Add((&position{created: 1_700_000_000, last: 1 << 40, stream: "jobs"}).append(nil))
	f.Add([]byte(cursorKind.Magic))
	f.Fuzz(func(t *testing.T, cursor []byte) {
		p, err := parsePosition(cursor)
		if err != nil {
			return
		}
		again, err := parsePosition(p.append(nil))
		require.NoError(t, err)
		require.Equal(t, p, again)
	})
}
