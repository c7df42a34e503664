package docserviced

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/internal/testprogram"
)

const (
	alertsFile    = "../../../deploy/prometheus/alerts.yml"
	dashboardFile = "../../../deploy/grafana/docstore.json"
)

// TestAlerts runs promtool on the rules and their tests.
func TestAlerts(t *testing.T) {
	promtool := testprogram.Path(t, "promtool")
	for _, args := range [][]string{{"check", "rules", "alerts.yml"}, {"test", "rules", "alerts_test.yml"}} {
		command := exec.Command(promtool, args...)
		command.Dir = filepath.Dir(alertsFile)
		out, err := command.CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
}

// TestAlertsAndDashboardUseExistingMetrics: each metric is listed in docs/metrics.md, which
// other tests compare with the code, and each alert has a section in docs/alerts.md.
func TestAlertsAndDashboardUseExistingMetrics(t *testing.T) {
	read := func(name string) string {
		content, err := os.ReadFile(name)
		require.NoError(t, err)
		return string(content)
	}
	metrics, alerts, dashboard := read("../../../docs/metrics.md"), read(alertsFile), read(dashboardFile)
	require.True(t, json.Valid([]byte(dashboard)))
	for file, content := range map[string]string{alertsFile: alerts, dashboardFile: dashboard} {
		names := regexp.MustCompile(`\b(docstore|boxcar)_[a-z_]+`).FindAllString(content, -1)
		require.NotEmpty(t, names)
		for _, name := range names {
			name = regexp.MustCompile(`_(bucket|count)$`).ReplaceAllString(name, "")
			require.Contains(t, metrics, "`"+name+"`", "in %s", file)
		}
	}
	page := read("../../../docs/alerts.md")
	for _, alert := range regexp.MustCompile(`- alert: (\S+)`).FindAllStringSubmatch(alerts, -1) {
		require.Contains(t, page, "\n## "+alert[1]+"\n")
	}
}
