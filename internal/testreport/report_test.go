package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestReport(t *testing.T) {
	for name, test := range map[string]struct{ events, want string }{
		"passed": {
			`{"Action":"output","Package":"docstore/a","Test":"TestX","Output":"=== RUN\n"}
{"Action":"pass","Package":"docstore/a","Test":"TestX"}
{"Action":"skip","Package":"docstore/a","Test":"TestY"}
{"Action":"pass","Package":"docstore/a","Elapsed":1.25}
{"Action":"skip","Package":"docstore/empty"}
`, "ok    docstore/a  1.2s\n|1 packages in 0s\n1 passed, 0 failed, 1 skipped\n"},
		"failed": {
			`{"Action":"output","Package":"docstore/a","Test":"TestX","Output":"got 1\n"}
{"Action":"output","Package":"docstore/b","Test":"TestZ","Output":"got 2\n"}
{"Action":"fail","Package":"docstore/a","Test":"TestX"}
{"Action":"fail","Package":"docstore/b","Test":"TestZ"}
{"Action":"fail","Package":"docstore/a","Elapsed":1}
{"Action":"fail","Package":"docstore/b","Elapsed":1}
`, "FAIL  docstore/a\ngot 1\nFAIL  docstore/b\ngot 2\nFAIL  docstore/a  1.0s\nFAIL  docstore/b  1.0s\n|" +
				"the first failure:\nFAIL  docstore/a\ngot 1\n|2 packages in 0s\n0 passed, 2 failed, 0 skipped\n"},
		"does not build": {
			`{"ImportPath":"docstore/a [docstore/a.test]","Action":"build-output","Output":"undefined: x\n"}
{"ImportPath":"docstore/a [docstore/a.test]","Action":"build-fail"}
{"Action":"output","Package":"docstore/a","Output":"FAIL docstore/a [build failed]\n"}
{"Action":"fail","Package":"docstore/a","FailedBuild":"docstore/a [docstore/a.test]"}
`, "FAIL  docstore/a\nundefined: x\nFAIL docstore/a [build failed]\n|" +
				"the first failure:\nFAIL  docstore/a\nundefined: x\nFAIL docstore/a [build failed]\n|1 packages in 0s\n0 passed, 1 failed, 0 skipped\n"},
		"text": {"go: no such tool\n", "go: no such tool\n|0 packages in 0s\n0 passed, 0 failed, 0 skipped\n"},
	} {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			r := newReport(&out)
			require.NoError(t, r.read(strings.NewReader(test.events)))
			r.end(0)
			require.Equal(t, strings.ReplaceAll(test.want, "|", "\n"), out.String())
		})
	}
}
