package eof_test

import (
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/internal/eof"
)

func TestEnd(t *testing.T) {
	wrapped := fmt.Errorf("reading: %w", io.EOF)
	require.True(t, eof.Is(io.EOF))
	for _, err := range []error{nil, io.ErrUnexpectedEOF, wrapped, errors.Join(io.EOF)} {
		require.False(t, eof.Is(err), err)
		require.Equal(t, err, eof.Unexpected(err))
	}
	require.Equal(t, io.ErrUnexpectedEOF, eof.Unexpected(io.EOF))
}
