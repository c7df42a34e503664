//go:build linux

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"docstore/internal/freeport"
	"docstore/internal/testprocess"
	"docstore/internal/testprogram"
)

const (
	// scrapeInterval is that of docs/metrics.md's users, at scale 1, and evaluates the rules.
	scrapeInterval = 15 * time.Second
	// scrapeTimeout is Prometheus's default, also in scaled time unless the interval is shorter.
	scrapeTimeout = 10 * time.Second
	// lookback is Prometheus's default at scale 1.
	lookback = 5 * time.Minute
)

// prometheus is a Prometheus that scrapes targets and evaluates rules.
type prometheus struct {
	*testprocess.Command
	address string
}

// startPrometheus starts one with targets by job, in a time that runs scale times as fast.
func startPrometheus(t testing.TB, rules ruleFile, targets map[string][]string, scale int) *prometheus {
	t.Helper()
	type config = map[string]any
	interval := scrapeInterval / time.Duration(scale)
	var jobs []config
	for job, addresses := range targets {
		jobs = append(jobs, config{"job_name": job, "static_configs": []config{{"targets": addresses}}})
	}
	dir := t.TempDir()
	write := func(name string, content any) string {
		text, err := yaml.Marshal(content)
		require.NoError(t, err)
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, text, 0o600))
		return path
	}
	main := write("prometheus.yml", config{
		"global": config{
			"scrape_interval": milliseconds(interval), "scrape_timeout": milliseconds(min(interval, scrapeTimeout)), "evaluation_interval": milliseconds(interval),
		},
		"rule_files": []string{write("rules.yml", rules)}, "scrape_configs": jobs,
	})
	p := &prometheus{address: freeport.Address(t)}
	p.Command = testprocess.Start(t, exec.Command(testprogram.Path(t, "prometheus"), "--config.file", main, "--storage.tsdb.path", filepath.Join(dir, "data"),
		"--web.listen-address", p.address, "--query.lookback-delta", milliseconds(lookback/time.Duration(scale)), "--log.level", "warn"))
	p.WaitResponse(t, "http://"+p.address+"/-/ready", func(status int, _ []byte) bool { return status == http.StatusOK })
	return p
}

func milliseconds(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) + "ms" }

// raised is an alert that fires.
type raised struct{ name, severity, instance string }

func (r raised) String() string { return fmt.Sprintf("%s %s %s", r.severity, r.name, r.instance) }

// firing returns the alerts that fire now.
func (p *prometheus) firing(ctx context.Context) ([]raised, error) {
	var answer struct {
		Alerts []struct {
			Labels map[string]string
			State  string
		}
	}
	if err := p.query(ctx, "alerts", nil, &answer); err != nil {
		return nil, err
	}
	var firing []raised
	for _, a := range answer.Alerts {
		if a.State == "firing" {
			firing = append(firing, raised{name: a.Labels["alertname"], severity: a.Labels["severity"], instance: a.Labels["instance"]})
		}
	}
	return firing, nil
}

// query requests a path of the API, and decodes the data of the answer.
func (p *prometheus) query(ctx context.Context, path string, values url.Values, data any) error {
	status, body, err := getPage(ctx, "http://"+p.address+"/api/v1/"+path+"?"+values.Encode())
	if err != nil {
		return err
	}
	if status != http.StatusOK {
		return fmt.Errorf("%s: %w: %s", path, httpStatusError(status), body)
	}
	return json.Unmarshal(body, &struct{ Data any }{data})
}
