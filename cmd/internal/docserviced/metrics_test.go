package docserviced

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
)

// docs/metrics.md lists exactly the metrics of the daemon.
func TestMetricsPageIsComplete(t *testing.T) {
	page, err := os.ReadFile("../../../docs/metrics.md")
	require.NoError(t, err)
	_, section, ok := strings.Cut(string(page), "<!-- docserviced -->")
	require.True(t, ok)
	section, _, _ = strings.Cut(section, "<!-- end -->")
	listed := map[string]bool{}
	for _, name := range regexp.MustCompile("(?m)^- `(docstore_[a-z_]+)").FindAllStringSubmatch(section, -1) {
		listed[name[1]] = true
	}
	there := map[string]bool{}
	descs := make(chan *prometheus.Desc, 1000)
	d, _ := startTestDaemon(t, testOptions(t, t.TempDir()))
	d.Metrics().Describe(descs)
	close(descs)
	for desc := range descs {
		name := regexp.MustCompile(`fqName: "([^"]+)"`).FindStringSubmatch(desc.String())[1]
		if strings.HasPrefix(name, "docstore_") {
			there[name] = true
		}
	}
	require.Equal(t, there, listed)
}
