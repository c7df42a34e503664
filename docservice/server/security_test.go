package server

import (
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/boxcarrpc"
	"docstore/internal/testcert"
)

func TestOperatorsReachTheServer(t *testing.T) {
	s := Security{Operators: []string{"frontend"}, TokenFile: testcert.Write(t, t.TempDir(), "tokens", []byte("frontend "+testToken))}
	a, err := s.open(slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	var options boxcarrpc.ServerOptions
	a.configure(&options)
	require.Equal(t, s.Operators, options.Operators)
}
