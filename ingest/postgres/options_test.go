package postgres

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParseURL(t *testing.T) {
	o, err := ParseURL("postgres://me:secret@db:5433/shop?table=sales.orders&sslmode=disable&slot=s&publication=p")
	require.NoError(t, err)
	require.Equal(t, Options{Connection: "postgres://me:secret@db:5433/shop?sslmode=disable", Table: "sales.orders", Slot: "s", Publication: "p"}, o)
	o, err = ParseURL("postgres://db/shop?query=SELECT+1&key=a,b")
	require.NoError(t, err)
	require.Equal(t, Options{Connection: "postgres://db/shop", Query: "SELECT 1", Key: []string{"a", "b"}}, o)
	for problem, url := range map[string]string{
		"percent-encode":    "postgres://me:se%cret@db/shop",
		`scheme "mysql"`:    "mysql://db/shop?table=a",
		"table twice":       "postgres://db/shop?table=a&table=b",
		"parameters of the": "postgres://db/shop?table=%zz",
	} {
		_, err := ParseURL(url)
		require.ErrorContains(t, err, problem)
		require.NotContains(t, err.Error(), "cret")
	}
}

func TestNew(t *testing.T) {
	const db = "postgres://db/shop"
	o, err := New(Options{Connection: db, Table: "Orders-2026"})
	require.NoError(t, err)
	require.Equal(t, name{"public", "Orders-2026"}, o.table)
	require.Equal(t, "docstore_orders_2026", o.options.Slot)
	require.Equal(t, "docstore_orders_2026", o.options.Publication)
	require.Equal(t, `"public"."a""b"`, name{"public", `a"b`}.quoted())
	for problem, wrong := range map[string]Options{
		"want a table or a query":          {Connection: db},
		"want a table or a query: ":        {Connection: db, Table: "a", Query: "SELECT"},
		"key is for a query":               {Connection: db, Table: "a", Key: []string{"id"}},
		"a query needs key":                {Connection: db, Query: "SELECT 1"},
		"slot and publication are for":     {Connection: db, Query: "SELECT 1", Key: []string{"id"}, Slot: "s"},
		"a query is not followed":          {Connection: db, Query: "SELECT 1", Key: []string{"id"}, Follow: true},
		"empty column name":                {Connection: db, Query: "SELECT 1", Key: []string{"id", ""}},
		"want SCHEMA.TABLE":                {Connection: db, Table: "a.b.c"},
		`table ".b"`:                       {Connection: db, Table: ".b"},
		"lower-case letters":               {Connection: db, Table: "a", Slot: "Slot"},
		`slot "` + strings.Repeat("s", 64): {Connection: db, Table: "a", Slot: strings.Repeat("s", 64)},
		"want at most 63 bytes":            {Connection: db, Table: "a", Publication: strings.Repeat("p", 64)},
		"postgres: ":                       {Connection: "postgres://db:port/shop", Table: "a"},
	} {
		_, err := New(wrong)
		require.ErrorContains(t, err, problem)
	}
	_, err = New(Options{Connection: "postgres://me:secret@db:port/shop", Table: "a"})
	require.Error(t, err)
	require.NotContains(t, err.Error(), "secret")
}
