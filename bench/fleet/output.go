package main

import (
	"fmt"
	"io"
	"strconv"
	"time"

	"docstore/bench/fleet/policy"
)

// A column prints a figure of a result.
type column struct {
	head  string
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
	{"scenario", func(r *result) string { return r.config.scenario }},
	{"policy", func(r *result) string { return r.config.policy }},
	{"subset", func(r *result) string { return r.config.subset }},
	{"load", func(r *result) string { return r.config.load }},
	{"k", func(r *result) string { return strconv.Itoa(r.config.k) }},
	{"Fk/B", func(r *result) string { return fixed(r.config.perBackend(), 1) }},
	{"p50 ms", func(r *result) string { return ms(r.p50) }},
	{"p99 ms", func(r *result) string { return ms(r.p99) }},
	{"p99.9 ms", func(r *result) string { return ms(r.p999) }},
	{"hot p99", func(r *result) string { return ms(r.p99Hot) }},
	{"rest p99", func(r *result) string { return ms(r.p99Rest) }},
	{"use %", func(r *result) string { return percent(r.meanUse) }},
	{"max use", func(r *result) string { return percent(r.maxUse) }},
	{"idle %", func(r *result) string { return percent(r.idle) }},
	{"(ideal)", func(r *result) string { return percent(r.idealIdle) }},
	{"max/mean", func(r *result) string { return fixed(r.most, 2) }},
	{"(ideal)", func(r *result) string { return fixed(r.idealMost, 2) }},
	{"slow share", func(r *result) string { return fixed(r.slowShare, 2) }},
	{"refused %", func(r *result) string { return percent(share(r.counts.refused, r.counts.requests)) }},
	{"failed %", func(r *result) string { return percent(share(r.counts.failures, r.counts.requests)) }},
	{"retries %", func(r *result) string { return percent(share(r.counts.retries, r.counts.requests)) }},
	{"conns/fe", func(r *result) string { return fixed(r.perFrontend[0], 1) }},
	{"max", func(r *result) string { return fixed(r.perFrontend[1], 0) }},
	{"conns/be", func(r *result) string { return fixed(r.perBack[0], 2) }},
	{"max", func(r *result) string { return fixed(r.perBack[1], 0) }},
	{"new/s", func(r *result) string { return fixed(r.perSecond(r.counts.connects), 0) }},
	{"msgs/s", func(r *result) string {
		return fixed(r.perSecond(r.counts.messages)+r.gossipPerSecond(), 0)
	}},
	{"MB", func(r *result) string {
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
