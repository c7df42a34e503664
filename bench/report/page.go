package main

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"docstore/bench/internal/results"
)

// page is docs/benchmarks.md.
type page struct {
	set      set
	pictures map[string][]string // links, by section
	out      bytes.Buffer
}

// A section is a part of the page: tables of results.
type section struct {
	title  string
	tables []string // without any of their results the section is said to be skipped
	intro  string
	render func(p *page)
}

// render writes the page.
func (p *page) render() []byte {
	p.head()
	p.goals()
	p.losses()
	for _, s := range sections {
		p.printf("\n## %s\n\n%s\n", s.title, strings.TrimSpace(s.intro))
		if !slices.ContainsFunc(s.tables, func(table string) bool { return len(p.set.of(table, "", "")) > 0 }) {
			why := cmp.Or(skipped[s.tables[0]], "`go run ./report -steps "+strings.Join(s.tables, ",")+"` measures it.")
			p.printf("\n**Skipped in this run.** %s\n", why)
			continue
		}
		s.render(p)
		for _, link := range p.pictures[s.tables[0]] {
			p.printf("\n%s\n", link)
		}
		p.origin(s.tables)
	}
	return bytes.TrimSpace(p.out.Bytes())
}

func (p *page) printf(format string, args ...any) { fmt.Fprintf(&p.out, format, args...) }

// head tells what the figures hold for.
func (p *page) head() {
	first, last := span(p.set.all)
	commits, machines := distinct(p.set.all, func(r results.Result) string { return r.Commit }), distinct(p.set.all, func(r results.Result) string { return r.Machine })
	warnings := map[string]int{}
	for _, r := range p.set.all {
		for _, w := range r.Warnings {
			if strings.HasPrefix(w, "others took") {
				w = "others took more than a tenth of the processors (marked * below)"
			}
			warnings[w]++
		}
	}
	p.printf("# Benchmarks\n\n<!-- written by bench/report; what it says of reasons is in bench/report/reasons.go -->\n\n%s\n\n", strings.TrimSpace(preface))
	size, all := p.set.size()
	p.printf("| | |\n|---|---|\n| size | %s |\n| measured | %s to %s |\n| commit | %s |\n| machine | %s |\n",
		all, first.Format("2006-01-02 15:04"), last.Format("2006-01-02 15:04 UTC"), strings.Join(commits, ", "), strings.Join(machines, "; "))
	p.printf("| results | %d, each one contestant in one phase of one round |\n", len(p.set.all))
	for _, w := range sortedKeys(warnings) {
		p.printf("| **warning** | %s: %d of %d results |\n", w, warnings[w], len(p.set.all))
	}
	p.printf("\n`%s`\n\n%s\n", reportCommand(size), strings.TrimSpace(reading))
}

func reportCommand(size string) string {
	if size == "tiny" || size == "full" {
		return "make bench-report SIZE=" + size
	}
	return "make bench-report"
}

func sortedKeys[V any](m map[string]V) (keys []string) {
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

// goals marks each goal.
func (p *page) goals() {
	p.printf("\n## Goals\n\n%s\n\n| | goal | wanted | measured | |\n|---|---|---|---|---|\n", strings.TrimSpace(goalsIntro))
	var missed missedGoals
	for _, g := range goals {
		wanted := g.wants()
		if g.told != nil {
			p.printf("| %s | %s | %s | %s | %s |\n", g.issue, g.text, wanted, g.told.figure, mark(g.told.reached))
			if !g.told.reached {
				missed.add(g)
			}
			continue
		}
		figure, detail, ok := g.measured(p.set)
		if !ok {
			p.printf("| %s | %s | %s | | not measured in this run |\n", g.issue, g.text, wanted)
			continue
		}
		reached := g.reached(figure)
		p.printf("| %s | %s | %s | %s%s | %s |\n", g.issue, g.text, wanted, g.format(figure), detail, mark(reached))
		if !reached {
			missed.add(g)
		}
	}
	if len(missed) > 0 {
		p.printf("\nWhat holds the others back:\n\n")
	}
	for _, m := range missed {
		p.printf("- **%s**: %s\n", strings.Join(m.goals, "; "), strings.TrimSpace(m.reason))
	}
}

// missedGoals are those that are missed, together by reason.
type missedGoals []struct {
	reason string
	goals  []string
}

// unexplained stands where nobody has written a reason.
const unexplained = "missed in this run; see the spread and the warnings above."

func (m *missedGoals) add(g goal) {
	reason, name := g.reason, g.issue+", "+g.text
	if reason == "" {
		reason = unexplained
	}
	for i := range *m {
		if (*m)[i].reason == reason {
			(*m)[i].goals = append((*m)[i].goals, name)
			return
		}
	}
	*m = append(*m, struct {
		reason string
		goals  []string
	}{reason, []string{name}})
}

func mark(reached bool) string {
	if reached {
		return "reached"
	}
	return "**missed**"
}

// A race is a figure by which contestants of a table are compared.
type race struct {
	table, ours, figure string
	least               bool // the least wins
	not                 []string
}

// races are those that the page looks through for what is lost.
var races = []race{
	{table: "article", ours: "docstore", figure: "ops/s"},
	{table: "limited", ours: "docstore", figure: "ops/s"},
	{table: "workloads", ours: "docstore", figure: "ops/s"},
	{table: "shapes", ours: "docstore", figure: "ops/s"},
	{table: "latency", ours: "docstore", figure: "p999 ns", least: true},
	{table: "calls", ours: "boxcar", figure: "ops/s", not: []string{"boxcar-classic"}},
	{table: "sizes", ours: "boxcar", figure: "ops/s"},
	{table: "rpc", ours: "boxcar", figure: "p99 ns", least: true},
	{table: "connections", ours: "boxcar", figure: "server bytes", least: true},
	{table: "documents", ours: "docstore", figure: "documents/s", not: []string{"docstore-none"}},
	{table: "debian", ours: "docstore", figure: "documents/s", not: []string{"docstore-none", "docstore-zstd"}},
	{table: "scarce", ours: "docstore", figure: "documents/s"},
}

// losses lists where a rival is ahead.
func (p *page) losses() {
	p.printf("\n## Where we lose\n\n%s\n\n| table | phase | ours | the best rival | ours / its |\n|---|---|---|---|---|\n", strings.TrimSpace(lossesIntro))
	lost := 0
	for _, r := range races {
		for _, part := range p.set.parts(r.table) {
			lost += p.lost(r, part)
		}
	}
	if lost == 0 {
		p.printf("| none | | | | |\n")
	}
	p.printf("\n%s\n", strings.TrimSpace(lossesReasons))
}

// lost lists the phases of a part of a race's table in which a rival is ahead.
func (p *page) lost(r race, part set) (lost int) {
	name := r.table
	if name == "shapes" {
		name = shapeOf(part.all[0])
	}
	for _, phase := range part.phases(r.table) {
		ours, ok := part.cell(r.table, r.ours, phase, r.figure)
		rivals := slices.DeleteFunc(part.contestants(r.table), func(name string) bool { return name == r.ours || slices.Contains(r.not, name) })
		rival, theirs, there := part.best(r.table, phase, r.figure, r.least, rivals...)
		if !ok || !there || (ours.Median >= theirs.Median) != r.least {
			continue
		}
		format := number
		if strings.HasSuffix(r.figure, " ns") {
			format = duration
		}
		lost++
		p.printf("| %s, %s | %s | %s | %s %s | %s |\n", name, unit(r.figure), phase, ours.as(format), rival, theirs.as(format), digits(ours.Median/theirs.Median))
	}
	return lost
}

// unit is a figure's name for people.
func unit(figure string) string {
	switch figure {
	case "p999 ns":
		return "p99.9"
	case "p99 ns":
		return "p99"
	}
	return figure
}

// origin tells how, when and of which commit tables were measured.
func (p *page) origin(tables []string) {
	var all []results.Result
	for _, table := range tables {
		all = append(all, p.set.of(table, "", "")...)
	}
	first, last := span(all)
	commits, commands := distinct(all, func(r results.Result) string { return r.Commit }), distinct(all, func(r results.Result) string { return r.Command })
	p.printf("\nMeasured %s to %s, commit %s, size: %s.\n\n", first.Format("2006-01-02 15:04"), last.Format("2006-01-02 15:04 UTC"), strings.Join(commits, ", "),
		strings.Join(distinct(all, sizeOf), ", "))
	for _, command := range commands {
		if !strings.HasPrefix(command, "go ") {
			command = "cd bench && go run ./" + command
		}
		p.printf("    %s\n", command)
	}
}

// span is when the first and the last of results were measured.
func span(all []results.Result) (first, last time.Time) {
	for i, r := range all {
		if i == 0 || r.Date.Before(first) {
			first = r.Date
		}
		if r.Date.After(last) {
			last = r.Date
		}
	}
	return first, last
}

// distinct is what results say, in the order in which it is said first.
func distinct(all []results.Result, of func(results.Result) string) (said []string) {
	for _, r := range all {
		if one := of(r); one != "" && !slices.Contains(said, one) {
			said = append(said, one)
		}
	}
	return said
}

// A column of a table of contestants.
type column struct {
	head, figure string
	format       func(float64) string
}

// matrix is a table of rates with a row for each contestant and a column for each phase.
func (p *page) matrix(table string) { p.matrixOf(p.set, table, rate) }

// matrixOf is the matrix of a part of a table.
func (p *page) matrixOf(part set, table, head string) {
	phases, contestants := part.phases(table), part.contestants(table)
	p.printf("\n| %s | %s |\n|---%s|\n", head, strings.Join(phases, " | "), strings.Repeat("|---", len(phases)))
	for _, contestant := range contestants {
		p.printf("| %s |", contestant)
		for _, phase := range phases {
			p.printf(" %s |", part.rate(table, contestant, phase))
		}
		p.printf("\n")
	}
}

// turned is a matrix with a row for each phase.
func (p *page) turned(table string) {
	phases, contestants := p.set.phases(table), p.set.contestants(table)
	p.printf("\n| %s | %s |\n|---%s|\n", rate, strings.Join(contestants, " | "), strings.Repeat("|---", len(contestants)))
	for _, phase := range phases {
		p.printf("| %s |", phase)
		for _, contestant := range contestants {
			p.printf(" %s |", p.set.rate(table, contestant, phase))
		}
		p.printf("\n")
	}
}

// rate is the figure that dbbench and rpcbench are about.
const rate = "ops/s"

// rate is that of a phase, empty if it was not measured.
func (s set) rate(table, contestant, phase string) string {
	c, ok := s.cell(table, contestant, phase, rate)
	if !ok {
		return ""
	}
	return c.String()
}

// list is a table with a row for each contestant of a phase. With ours, the first column
// is compared with that of others.
func (p *page) list(table, phase, ours string, columns ...column) {
	p.printf("\n| %s |", phase)
	rule := "|---|"
	for i, c := range columns {
		p.printf(" %s |", c.head)
		rule += "---|"
		if i == 0 && ours != "" {
			p.printf(" %s / it |", ours)
			rule += "---|"
		}
	}
	p.printf("\n%s\n", rule)
	base, _ := p.set.cell(table, ours, phase, columns[0].figure)
	for _, contestant := range p.set.contestants(table) {
		if len(p.set.of(table, contestant, phase)) == 0 {
			continue
		}
		p.printf("| %s |", contestant)
		for i, column := range columns {
			c, ok := p.set.cell(table, contestant, phase, column.figure)
			text := ""
			if ok {
				text = c.as(column.format)
			}
			p.printf(" %s |", text)
			if i == 0 && ours != "" {
				p.printf(" %s |", digits(base.Median/c.Median))
			}
		}
		p.printf("\n")
	}
}
