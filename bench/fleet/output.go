package main

import (
	"fmt"
	"io"
	"strconv"
	"time"
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

var columns = []column{
	{"scenario", func(r *result) string { return r.config.scenario }},
	{"policy", func(r *result) string { return r.config.policy }},
	{"subset", func(r *result) string { return r.config.subset }},
	{"load", func(r *result) string { return r.config.load }},
	{"k", func(r *result) string { return strconv.Itoa(r.config.k) }},
	{"Fk/B", func(r *result) string { return fixed(r.config.perBackend(), 1) }},
	{"shape", func(r *result) string { return r.config.shape.name }},
	{"service ms", func(r *result) string { return fixed(float64(r.config.service)/1e6, 2) }},
	{"seed", func(r *result) string { return strconv.FormatUint(r.config.seed, 10) }},
	{"p50 ms", func(r *result) string { return ms(r.p50) }},
	{"p99 ms", func(r *result) string { return ms(r.p99) }},
	{"p99.9 ms", func(r *result) string { return ms(r.p999) }},
	{"hot p99", func(r *result) string { return ms(r.p99Hot) }},
	{"rest p99", func(r *result) string { return ms(r.p99Rest) }},
	{"use %", func(r *result) string { return percent(r.meanUse) }},
	{"max use", func(r *result) string { return percent(r.maxUse) }},
	{"idle %", func(r *result) string { return percent(r.idle) }},
	{"(ideal)", func(r *result) string { return percent(r.idealIdle) }},
	{"left %", func(r *result) string { return percent(share(r.counts.left, r.counts.attempts)) }},
	{"refused %", func(r *result) string { return percent(share(r.counts.refused, r.counts.requests)) }},
	{"failed %", func(r *result) string { return percent(share(r.counts.failures, r.counts.requests)) }},
	{"retries %", func(r *result) string { return percent(share(r.counts.retries, r.counts.requests)) }},
	{"late %", func(r *result) string { return percent(share(r.counts.expired, r.counts.requests)) }},
	{"hedged %", func(r *result) string { return percent(share(r.counts.hedges, r.counts.requests)) }},
	{"borrowings", func(r *result) string { return strconv.FormatUint(r.counts.borrowings, 10) }},
	{"short s", func(r *result) string { return fixed(r.short.Seconds(), 2) }},
	{"lowest s", func(r *result) string { return fixed(r.seeking.Seconds(), 2) }},
	{"429 %", func(r *result) string { return percent(share(r.counts.rateLimited, r.counts.requests)) }},
	{"conns/fe", func(r *result) string { return fixed(r.perFrontend[0], 1) }},
	{"max", func(r *result) string { return fixed(r.perFrontend[1], 0) }},
	{"conns/be", func(r *result) string { return fixed(r.perBack[0], 2) }},
	{"max", func(r *result) string { return fixed(r.perBack[1], 0) }},
	{"new/s", func(r *result) string { return fixed(r.perSecond(r.counts.connects), 0) }},
	{"ended/s", func(r *result) string { return fixed(r.perSecond(r.counts.disconnects), 0) }},
	{"msgs/s", func(r *result) string { return fixed(r.perSecond(r.counts.messages+r.counts.gossip), 0) }},
	{"MB/s", func(r *result) string {
		return fixed(frameBytes*r.perSecond(r.counts.messages+r.counts.gossip)/1e6, 1)
	}},
	{"table age s", func(r *result) string { return fixed(float64(r.age)/1e9, 1) }},
	{"fresh %", func(r *result) string { return percent(r.fresh) }},
	{"announced s", func(r *result) string { return fixed(r.announced[0].Seconds(), 2) }},
	{"last", func(r *result) string { return fixed(r.announced[1].Seconds(), 2) }},
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
