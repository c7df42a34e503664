//go:build linux

package e2e

import (
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// rulesFile has the rules of deploy/.
const rulesFile = "../../deploy/prometheus/alerts.yml"

// ruleFile is the content of a file of alerting rules.
type ruleFile struct {
	Groups []struct {
		Name  string `yaml:"name"`
		Rules []rule `yaml:"rules"`
	} `yaml:"groups"`
}

// rule is an alerting rule.
type rule struct {
	Alert       string            `yaml:"alert"`
	Expr        string            `yaml:"expr"`
	For         string            `yaml:"for,omitempty"`
	Labels      map[string]string `yaml:"labels"`
	Annotations map[string]string `yaml:"annotations"`
}

func readRules(t testing.TB) ruleFile {
	t.Helper()
	content, err := os.ReadFile(rulesFile)
	require.NoError(t, err)
	var rules ruleFile
	require.NoError(t, yaml.Unmarshal(content, &rules))
	return rules
}

// find returns the rule of an alert.
func (f ruleFile) find(t testing.TB, alert string) rule {
	t.Helper()
	for _, group := range f.Groups {
		for _, r := range group.Rules {
			if r.Alert == alert {
				return r
			}
		}
	}
	require.FailNow(t, "no rule", alert)
	return rule{}
}

var (
	// timeRange matches the window of a range vector.
	timeRange = regexp.MustCompile(`\[(\d+)([smhd])\]`)
	// horizon matches the second argument of predict_linear.
	horizon = regexp.MustCompile(`, (\d+) \* 3600\)`)
	// ageThreshold matches the bound of an age in seconds: of the gauges in time units, or of
	// the percentile of such a histogram. docstore_fetch_seconds, a latency, is not an age.
	ageThreshold = regexp.MustCompile(`((?:_lag|_last_contact|_age)_seconds|docstore_(?:freshness|append_source_age)_seconds_bucket\[\w+\]\)\)\)) > (\d+)`)
)

// unitSeconds are the units of timeRange.
var unitSeconds = map[string]int{"s": 1, "m": 60, "h": 3600, "d": 86400}

// scaled returns the rules for a time that runs scale times as fast: "for", windows, horizons
// and bounds of ages are divided by it. Counts, shares, sizes and latencies are unchanged.
func (f ruleFile) scaled(t testing.TB, scale int) ruleFile {
	t.Helper()
	if scale == 1 {
		return f
	}
	var result ruleFile
	for _, group := range f.Groups {
		rules := make([]rule, len(group.Rules))
		for i, r := range group.Rules {
			if r.For != "" {
				r.For = (duration(t, r.For) / time.Duration(scale)).String()
			}
			r.Expr = ageThreshold.ReplaceAllStringFunc(r.Expr, func(text string) string {
				m := ageThreshold.FindStringSubmatch(text)
				return m[1] + " > " + strconv.FormatFloat(float64(atoi(t, m[2]))/float64(scale), 'g', -1, 64)
			})
			r.Expr = timeRange.ReplaceAllStringFunc(r.Expr, func(text string) string {
				return "[" + strconv.FormatInt((window(t, text)/time.Duration(scale)).Milliseconds(), 10) + "ms]"
			})
			r.Expr = horizon.ReplaceAllString(r.Expr, ", $1 * 3600 / "+strconv.Itoa(scale)+")")
			rules[i] = r
		}
		group.Rules = rules
		result.Groups = append(result.Groups, group)
	}
	return result
}

// within returns the time within which the alert of a rule must fire after a fault: the age that
// it waits for, its longest window of a rate, and "for".
func (r rule) within(t testing.TB) time.Duration {
	t.Helper()
	var limit time.Duration
	if r.For != "" {
		limit = duration(t, r.For)
	}
	if m := ageThreshold.FindStringSubmatch(r.Expr); m != nil {
		limit += time.Duration(atoi(t, m[2])) * time.Second
	}
	return limit + r.window(t)
}

// window returns the longest window of a rule, of which hours are left out: those are budgets and
// predictions, which a shorter window accompanies.
func (r rule) window(t testing.TB) (longest time.Duration) {
	t.Helper()
	for _, m := range timeRange.FindAllString(r.Expr, -1) {
		if w := window(t, m); w < time.Hour {
			longest = max(longest, w)
		}
	}
	return longest
}

func window(t testing.TB, text string) time.Duration {
	t.Helper()
	m := timeRange.FindStringSubmatch(text)
	return time.Duration(atoi(t, m[1])*unitSeconds[m[2]]) * time.Second
}

func duration(t testing.TB, text string) time.Duration {
	t.Helper()
	d, err := time.ParseDuration(text)
	require.NoError(t, err)
	return d
}

func atoi(t testing.TB, text string) int {
	t.Helper()
	n, err := strconv.Atoi(text)
	require.NoError(t, err)
	return n
}

// Each duration of the rules is scaled, and nothing else is.
func TestScaledRules(t *testing.T) {
	rules := readRules(t)
	scaled := rules.scaled(t, 10)
	for alert, want := range map[string]struct{ expr, wait string }{
		"DocstoreDown":         {`up{job="docstore"} == 0`, "12s"},
		"DocstoreManifestLag":  {"docstore_manifest_lag_seconds > 90", "30s"},
		"DocstoreEtcdSilent":   {"docstore_etcd_last_contact_seconds > 6", "12s"},
		"DocstoreNotFresh":     {"histogram_quantile(0.99, sum by (instance, collection, le) (rate(docstore_freshness_seconds_bucket[30000ms]))) > 6", "1m0s"},
		"DocstoreCanaryLate":   {"docstore_canary_age_seconds > 30", "30s"},
		"DocstoreSourceOld":    {"histogram_quantile(0.99, sum by (instance, queue, le) (rate(docstore_append_source_age_seconds_bucket[30000ms]))) > 30", "1m0s"},
		"DocstoreSlow":         {"histogram_quantile(0.99, sum by (instance, method, le) (rate(docstore_fetch_seconds_bucket[30000ms]))) > 0.05", "1m0s"},
		"DocstoreDiskFull":     {"docstore_disk_free_bytes < 10e9 or (predict_linear(docstore_disk_free_bytes[2160000ms], 24 * 3600 / 10) < 0 and docstore_disk_free_bytes < 0.4 * docstore_disk_bytes) or docstore_inodes_free < 1000", "1m30s"},
		"DocstoreIndexProblem": {"docstore_index_problem == 1", "30s"},
		"BoxcarPanics":         {"increase(boxcar_server_panics_total[90000ms]) > 0", ""},
	} {
		r := scaled.find(t, alert)
		require.Equal(t, want.expr, r.Expr, alert)
		require.Equal(t, want.wait, r.For, alert)
	}
	// Every bound of a metric in seconds is an age, except latencies and shares of time.
	for _, group := range rules.Groups {
		for _, r := range group.Rules {
			others := strings.Contains(r.Expr, "docstore_fetch_seconds") || strings.Contains(r.Expr, "writes_stopped_seconds_total") || strings.Contains(r.Expr, "canary_seconds_count")
			require.Equal(t, strings.Contains(r.Expr, "_seconds") && !others, ageThreshold.MatchString(r.Expr), r.Alert)
		}
	}
	require.Equal(t, 20*time.Minute, rules.find(t, "DocstoreManifestLag").within(t))
	require.Equal(t, 16*time.Minute, rules.find(t, "DocstoreNotFresh").within(t))
	require.Equal(t, 5*time.Minute, rules.find(t, "BoxcarErrorBudgetFast").within(t))
}
