package main

import (
	"encoding/csv"
	"fmt"
	"io"
	"strconv"
	"time"

	"docstore/bench/fleet/policy"
)

// A column prints a figure of a result.
type column struct {
	head  string
	csv   string
	value func(r *result) string
}

func ms(d time.Duration) string      { return strconv.FormatFloat(float64(d)/1e6, 'f', 1, 64) }
func percent(x float64) string       { return strconv.FormatFloat(100*x, 'f', 2, 64) }
func fixed(x float64, n int) string  { return strconv.FormatFloat(x, 'f', n, 64) }
func share(part, all uint64) float64 { return float64(part) / float64(max(all, 1)) }

func (r *result) perSecond(n uint64) float64 { return float64(n) / r.config.duration.Seconds() }

// gossipPerSecond returns the number of gossip messages that the fleet would send.
func (r *result) gossipPerSecond() float64 {
	if r.config.policy != "knotty" {
		return 0
	}
	return policy.GossipDeliveries * float64(r.config.backends) / (policy.GossipInterval / 1e9)
}

var columns = []column{
	{"policy", "policy", func(r *result) string { return r.config.policy }},
	{"subset", "subset", func(r *result) string { return r.config.subset }},
	{"load", "load", func(r *result) string { return r.config.load }},
	{"k", "k", func(r *result) string { return strconv.Itoa(r.config.k) }},
	{"Fk/B", "fk_over_b", func(r *result) string { return fixed(r.config.perBackend(), 1) }},
	{"p50 ms", "p50_ms", func(r *result) string { return ms(r.p50) }},
	{"p99 ms", "p99_ms", func(r *result) string { return ms(r.p99) }},
	{"p99.9 ms", "p999_ms", func(r *result) string { return ms(r.p999) }},
	{"hot p99", "hot_p99_ms", func(r *result) string { return ms(r.p99Hot) }},
	{"rest p99", "rest_p99_ms", func(r *result) string { return ms(r.p99Rest) }},
	{"use %", "use_mean_percent", func(r *result) string { return percent(r.meanUse) }},
	{"max use", "use_max_percent", func(r *result) string { return percent(r.maxUse) }},
	{"idle %", "idle_percent", func(r *result) string { return percent(r.idle) }},
	{"(ideal)", "idle_ideal_percent", func(r *result) string { return percent(r.idealIdle) }},
	{"max/mean", "max_over_mean", func(r *result) string { return fixed(r.most, 2) }},
	{"(ideal)", "max_over_mean_ideal", func(r *result) string { return fixed(r.idealMost, 2) }},
	{"slow share", "slow_share", func(r *result) string { return fixed(r.slowShare, 2) }},
	{"refused %", "refused_percent", func(r *result) string { return percent(share(r.counts.refused, r.counts.requests)) }},
	{"failed %", "failed_percent", func(r *result) string { return percent(share(r.counts.failures, r.counts.requests)) }},
	{"retries %", "retries_percent", func(r *result) string { return percent(share(r.counts.retries, r.counts.requests)) }},
	{"conns/fe", "connections_per_frontend", func(r *result) string { return fixed(r.perFrontend[0], 1) }},
	{"max", "connections_per_frontend_max", func(r *result) string { return fixed(r.perFrontend[1], 0) }},
	{"conns/be", "connections_per_backend", func(r *result) string { return fixed(r.perBack[0], 2) }},
	{"max", "connections_per_backend_max", func(r *result) string { return fixed(r.perBack[1], 0) }},
	{"new/s", "new_connections_per_second", func(r *result) string { return fixed(r.perSecond(r.counts.connects), 0) }},
	{"msgs/s", "messages_per_second", func(r *result) string {
		return fixed(r.perSecond(r.counts.messages)+r.gossipPerSecond(), 0)
	}},
	{"MB", "state_mb", func(r *result) string {
		return fixed(float64(r.memory.frontends+r.memory.pairs)/1e6, 0)
	}},
}

// line returns the summary of a run.
func (r *result) line() string {
	f, b := uint64(r.config.frontends), uint64(r.config.backends)
	return fmt.Sprintf("%s/%s: %d bytes a frontend, %d a backend, %d a pair; %d requests, %d events in %v",
		r.config.policy, r.config.subset, r.memory.frontends/f, r.memory.backends/b, r.memory.pairs/(f*uint64(r.config.k)),
		r.counts.requests, r.events, r.spent.Round(time.Millisecond))
}

// writeTable writes the results in Markdown.
func writeTable(w io.Writer, results []result) error {
	text := "|"
	for _, c := range columns {
		text += " " + c.head + " |"
	}
	text += "\n|"
	for range columns {
		text += "---|"
	}
	for i := range results {
		text += "\n|"
		for _, c := range columns {
			text += " " + c.value(&results[i]) + " |"
		}
	}
	_, err := fmt.Fprintln(w, text)
	return err
}

func writeCSV(w io.Writer, results []result) error {
	out := csv.NewWriter(w)
	head := []string{"scenario", "frontends", "backends", "slots", "seed", "seconds", "requests"}
	for _, c := range columns {
		head = append(head, c.csv)
	}
	rows := [][]string{head}
	for i := range results {
		r := &results[i]
		row := []string{
			r.config.scenario, strconv.Itoa(r.config.frontends), strconv.Itoa(r.config.backends), strconv.Itoa(r.config.size),
			strconv.FormatUint(r.config.seed, 10), fixed(r.config.duration.Seconds(), 1), strconv.FormatUint(r.counts.requests, 10),
		}
		for _, c := range columns {
			row = append(row, c.value(r))
		}
		rows = append(rows, row)
	}
	if err := out.WriteAll(rows); err != nil {
		return err
	}
	return out.Error()
}
