package sources

import (
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/ingest/records"
)

// FuzzList: each source of a valid list has a name, a URL and a valid Transform.
func FuzzList(f *testing.F) {
	f.Add([]byte("sources:\n- {name: a, from: 's3://b/*', id: sku, delimiter: ;, typed-cells: true, drop: [note], rename: {price: eur}, rate: 7}\nremoved: [b]"))
	f.Add([]byte("sources:\n- {name: a, from: 'kafka://h:1/t', id-template: '{a}-{b.c}', keep: [a]}"))
	f.Fuzz(func(t *testing.T, content []byte) {
		parsed, err := parseList("list.yaml", content, &Options{Format: records.FormatAuto, Prefix: "--"})
		if err != nil {
			return
		}
		for _, e := range parsed.sources {
			require.NotEmpty(t, e.name)
			require.NotEmpty(t, e.from)
			require.NoError(t, e.options.Transform.Check("", e.options.Format))
		}
	})
}
