package simulate

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// alertsFile has the alerts that operators use.
const alertsFile = "../../deploy/prometheus/alerts.yml"

// alert is an alert of alertsFile, or one of several by which it is raised. It holds if its value
// compares with its limit.
type alert struct {
	name, metric, label, operator string
	limit                         float64
	value                         func(a *alert, series string, h history, most map[string]float64) float64
}

// unavailable is not evaluated: it holds while servers start, and the rule "ready" says more.
const unavailable = "DocstoreUnavailable"

// alertForms are the expressions that are evaluated, with the value that they compare. Others are
// those of the metrics of append and of front ends, of hours, of quantiles, and those that divide by a
// number of servers or by that of other requests.
var alertForms = []struct {
	form  *regexp.Regexp
	value func(a *alert, series string, h history, most map[string]float64) float64
}{
	{regexp.MustCompile(`^(?:max by \(collection\) \()?(?P<metric>(?:docstore_[a-z_]+|up))(?:\{(?P<label>\w+="\w+")\})?\)? (?P<operator>==|>|<) (?P<limit>[\de]+)$`), (*alert).current},
	{regexp.MustCompile(`^(?:rate|increase)\((?P<metric>\w+)\[1[05]m\]\) (?P<operator>>) (?P<limit>[\d.]+)$`), (*alert).rate},
	{regexp.MustCompile(`^sum by \(instance, collection\) \(rate\((?P<metric>\w+)\{(?P<label>\w+="\w+")\}\[5m\]\)\) / sum by .* (?P<operator>>) (?P<limit>[\d.]+)$`), (*alert).share},
	{regexp.MustCompile(`^max by \(collection\) \((?P<metric>\w+)\) - on \(collection\) group_right \w+ (?P<operator>>) (?P<limit>\d+)$`), (*alert).behind},
}

// alertExpression is the expression of an alert in alertsFile.
var alertExpression = regexp.MustCompile(`- alert: (\S+)\n +expr: (?:\|\n +)?((?s:.*?))\n +(?:for|labels):`)

// readAlerts reads alertsFile, and adds contactAge.
var readAlerts = sync.OnceValues(func() (alerts []alert, err error) {
	content, err := os.ReadFile(alertsFile)
	if err != nil {
		return nil, err
	}
	for _, m := range alertExpression.FindAllStringSubmatch(string(content), -1) {
		if m[1] == unavailable {
			continue
		}
		for expression := range strings.SplitSeq(strings.Join(strings.Fields(m[2]), " "), " or ") {
			a, err := parseAlert(m[1], expression)
			if err != nil {
				return nil, err
			}
			alerts = append(alerts, a...)
		}
	}
	alerts = append(alerts, alert{name: contactAge, metric: "docstore_manifest_last_contact_seconds", operator: ">", limit: contactTime.Seconds(), value: (*alert).current})
	return alerts, nil
})

// parseAlert returns the alert of an expression, none if it has no form of alertForms.
func parseAlert(name, expression string) (alerts []alert, err error) {
	for _, f := range alertForms {
		parts := f.form.FindStringSubmatch(expression)
		if parts == nil {
			continue
		}
		part := func(name string) string {
			if i := f.form.SubexpIndex(name); i >= 0 {
				return parts[i]
			}
			return ""
		}
		a := alert{name: name, metric: part("metric"), label: part("label"), operator: part("operator"), value: f.value}
		if a.limit, err = strconv.ParseFloat(part("limit"), 64); err != nil {
			return nil, err
		}
		alerts = append(alerts, a)
	}
	return alerts, nil
}

// isMeant reports whether the alert is about a series.
func (a *alert) isMeant(series string) bool {
	metric, labels, _ := strings.Cut(series, "{")
	return metric == a.metric && strings.Contains(labels, a.label)
}

// holds reports whether the expression holds for a value.
func (a *alert) holds(value float64) bool {
	switch a.operator {
	case "==":
		return value == a.limit
	case "<":
		return value < a.limit
	}
	return value > a.limit
}

// rateWindow is the time over which rates and shares are computed.
const rateWindow = 5 * time.Minute

// scrape are the values of the series of a process at a time.
type scrape struct {
	at     time.Time
	values map[string]float64
}

// history are the scrapes of a process within rateWindow, the newest last.
type history []scrape

// add adds a scrape.
func (h *history) add(s scrape) {
	*h = slices.DeleteFunc(append(*h, s), func(old scrape) bool { return s.at.Sub(old.at) > rateWindow })
}

func (h history) last() scrape { return h[len(h)-1] }

// increase returns how much a counter has grown.
func (h history) increase(series string) float64 {
	return h.last().values[series] - h[0].values[series]
}

// current is the value of a metric.
func (a *alert) current(series string, h history, _ map[string]float64) float64 {
	return h.last().values[series]
}

// rate is how much a counter grows in a second.
func (a *alert) rate(series string, h history, _ map[string]float64) float64 {
	return h.increase(series) / max(1, h.last().at.Sub(h[0].at).Seconds())
}

// share is the share of a counter of a collection that has the label.
func (a *alert) share(series string, h history, _ map[string]float64) float64 {
	all, of := 0.0, collectionLabel.FindString(series)
	for other := range h.last().values {
		if metric, labels, _ := strings.Cut(other, "{"); metric == a.metric && strings.Contains(labels, of) {
			all += h.increase(other)
		}
	}
	return h.increase(series) / max(1, all)
}

// behind is how much less the server has than another one.
func (a *alert) behind(series string, h history, most map[string]float64) float64 {
	return most[series] - h.last().values[series]
}

var collectionLabel = regexp.MustCompile(`collection="[^"]*"`)

// parseMetrics returns the values of the series of alerts in the text format of Prometheus.
func parseMetrics(alerts []alert, text string) (map[string]float64, error) {
	values, wanted := map[string]float64{}, map[string]bool{}
	for _, a := range alerts {
		wanted[a.metric] = true
	}
	for line := range strings.Lines(text) {
		series, number, _ := strings.Cut(strings.TrimSpace(line), " ")
		metric, _, _ := strings.Cut(series, "{")
		if !wanted[metric] {
			continue
		}
		value, err := strconv.ParseFloat(number, 64)
		if err != nil {
			return nil, fmt.Errorf("%q: %w", line, err)
		}
		values[series] = value
	}
	return values, nil
}

// raised returns the sorted names of the alerts that hold after the last scrape of a server. most are
// the highest values of all servers.
func raised(alerts []alert, h history, most map[string]float64) (names []string) {
	for series := range h.last().values {
		for _, a := range alerts {
			if a.isMeant(series) && a.holds(a.value(&a, series, h, most)) {
				names = append(names, a.name)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}
