package simulate

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The expressions of these alerts are evaluated. Each has causes, but those which no fault explains.
func TestAlertsOfTheFile(t *testing.T) {
	alerts, err := readAlerts()
	require.NoError(t, err)
	var names []string
	for _, a := range alerts {
		names = append(names, a.name)
	}
	require.Equal(t, []string{
		down, diskHangs, notReady, "DocstoreTailStopped", damage, "DocstoreLag", "DocstoreCanaryLate", "DocstoreAppendLag", publishError,
		announceStopped, manifestLag, manifestError, manifestSilent, etcdSilent, unequal, "DocstoreErrors",
		"DocstoreIndexProblem", "DocstoreWritesStopped", diskFull, "DocstoreShardFailed",
		"DocstorePlacementStale", "DocstoreMoveSlow", "BoxcarPanics", "BoxcarPeersFail", contactAge,
	}, slices.Compact(names))
	for name := range causes {
		require.Contains(t, names, name)
	}
}

func TestRaised(t *testing.T) {
	alerts := []alert{
		{name: "zero", metric: "a", operator: "==", limit: 0, value: (*alert).current},
		{name: "more", metric: "b", label: `effect="x"`, operator: ">", limit: 3, value: (*alert).current},
		{name: "less", metric: "b", label: `effect="y"`, operator: "<", limit: 1, value: (*alert).current},
		{name: "rate", metric: "c", operator: ">", limit: 1, value: (*alert).rate},
		{name: "share", metric: "d", label: `answer="bad"`, operator: ">", limit: 0.1, value: (*alert).share},
		{name: "behind", metric: "e", operator: ">", limit: 2, value: (*alert).behind},
	}
	most := map[string]float64{"e": 10}
	for metrics, want := range map[string][]string{
		"# HELP a 0\na{collection=\"jobs\"} 1\nb{effect=\"x\"} 3\nb{effect=\"y\"} 1\n":         nil,
		"a 0\na{collection=\"jobs\"} 0\nb{effect=\"x\"} 3\n":                                   {"zero"},
		"a 0\nb{effect=\"x\"} 3.5\nb{effect=\"y\"} 0.5\n":                                      {"less", "more", "zero"},
		"c 20\nd{answer=\"bad\",collection=\"j\"} 1\nd{answer=\"good\",collection=\"j\"} 9\n":  {"rate"},
		"c 10\nd{answer=\"bad\",collection=\"j\"} 2\nd{answer=\"good\",collection=\"j\"} 9\n":  {"share"},
		"c 10\nd{answer=\"bad\",collection=\"j\"} 1\nd{answer=\"good\",collection=\"k\"} 90\n": {"share"},
		"e 8\n": nil,
		"e 7\n": {"behind"},
	} {
		values, err := parseMetrics(alerts, metrics)
		require.NoError(t, err)
		var h history
		h.add(scrape{time.Unix(0, 0), map[string]float64{"c": 1e9}})
		h.add(scrape{time.Unix(1000, 0), map[string]float64{}})
		h.add(scrape{time.Unix(1010, 0), values})
		require.Equal(t, want, raised(alerts, h, most), metrics)
	}
	_, err := parseMetrics(alerts, "a\n")
	require.Error(t, err)
}
