package queue

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestErrors(t *testing.T) {
	c := error(&CorruptionError{Path: "p", Segment: 2, Offset: 3, ID: "x", Reason: "r"})
	assert.ErrorIs(t, c, ErrCorrupt)
	assert.Equal(t, `queue: p: segment 2, offset 3, id "x": r`, c.Error())
	u := error(&unavailableError{Address{Segment: 1, Block: 2, Index: 3}, c})
	assert.ErrorIs(t, u, ErrUnavailable)
	assert.ErrorIs(t, u, ErrCorrupt)
	assert.NotErrorIs(t, u, ErrMismatch)
	var as *CorruptionError
	assert.True(t, errors.As(u, &as))
	assert.Equal(t, `queue: document is unavailable: address 1/2/3: `+c.Error(), u.Error())
}
