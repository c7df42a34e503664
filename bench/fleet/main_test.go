package main

import (
	"bytes"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/bench/fleet/policy"
)

// small returns the config of a run of at most a second.
func small(policy string) config {
	return config{
		frontends: 40, backends: 1000, cells: 1, columns: 1, k: 50, policy: policy, subset: "rocksteadier", load: "0.4", scenario: "steady",
		duration: 5 * time.Second, warmup: 2 * time.Second, seed: 1,
		hotShare: 0.05, hotTimes: 4, coldShare: 0.2, failShare: failShare,
		shape: shapes[0], tokens: tokenRate, gossipRelays: 1,
	}
}

// simulated runs c and compares the records of frontends and backends.
func simulated(t *testing.T, c config) (*simulation, result) {
	t.Helper()
	require.NoError(t, c.resolve())
	s, err := newSimulation(c)
	require.NoError(t, err)
	s.run(func(float64, uint64) {})
	lanes, taken, sessions, conns := 0, 0, 0, 0
	for _, p := range s.pairs {
		lanes += int(p.lanes)
	}
	for i := range s.backends {
		taken += s.backends[i].board.Taken()
		sessions += int(s.backends[i].sessions)
	}
	for i := range s.frontends {
		conns += int(s.frontends[i].conns)
	}
	require.Len(t, s.pairs, sessions)
	require.Equal(t, sessions, conns)
	if c.policy == "viamedia" {
		lanes = len(s.pairs) // each pair has one slot for all its connections
	}
	require.Equal(t, lanes, taken, "leased slots and held slots")
	return s, s.result(0)
}

func TestTheSameSeedMakesTheSameBytes(t *testing.T) {
	bytesOf := func(seed string) string {
		var out bytes.Buffer
		require.NoError(t, run(&out, io.Discard, strings.Fields(
			"-frontends 30 -backends 300 -k 40 -policy all -load 0.4 -warmup 1s -duration 2s -scenario failures,rolling -seed "+seed)))
		require.Contains(t, out.String(), " MB |\n")
		return regexp.MustCompile(` \d+ \|\n`).ReplaceAllString(out.String(), "\n") // the memory of the process may differ
	}
	first := bytesOf("1")
	require.Equal(t, first, bytesOf("1"))
	require.NotEqual(t, first, bytesOf("2"))
}

func TestEveryRequestIsAccountedFor(t *testing.T) {
	for _, name := range policy.Names() {
		for _, scenario := range scenarios {
			t.Run(name+"/"+scenario, func(t *testing.T) {
				c := small(name)
				c.scenario, c.warmup, c.backends = scenario, 0, 400
				if c.losesCell() {
					c.cells, c.columns = 4, 2
				}
				if strings.HasPrefix(scenario, "silent") {
					c.deadline, c.hedge, c.options.SilenceTimeout = time.Second, 150*time.Millisecond, 500e6
				}
				s, r := simulated(t, c)
				underWay := uint64(len(s.tasks) - len(s.freeTasks) - s.shadows)
				done := uint64(len(s.measure.hot) + len(s.measure.rest))
				require.Equal(t, r.counts.requests, done+r.counts.refused+r.counts.failures+underWay)
				require.Positive(t, done)
				atMost := 0.1
				if scenario == "rolling" { // in five seconds half of the backends restart
					atMost = 0.5
				}
				require.Less(t, share(r.counts.failures, r.counts.requests), atMost)
			})
		}
	}
}

// With one frontend, a constant service time and random choice each backend is an
// M/D/1 queue with a known mean wait.
func TestMD1QueueHasTheoreticalWait(t *testing.T) {
	for _, load := range []string{"0.3", "0.7"} {
		c := small("random")
		c.frontends, c.backends, c.k, c.load, c.hotShare, c.coldShare = 1, 500, 500, load, 0, 0
		c.service, c.sigma = 10*time.Millisecond, 0
		c.duration, c.warmup = 20*time.Second, 5*time.Second
		_, r := simulated(t, c)
		rho := map[string]float64{"0.3": 0.3, "0.7": 0.7}[load]
		require.InEpsilon(t, 10+1+10*rho/(2*(1-rho)), float64(r.mean)/1e6, 0.02)
		require.InEpsilon(t, rho, r.meanUse, 0.02)
	}
}

func TestBytes(t *testing.T) {
	for _, x := range []struct {
		policy            string
		frontend, backend uint64 // at most
	}{{"slots", 25_000, 160}, {"p2c", 6_000, 160}, {"prequal", 8_000, 160}, {"knotty", 12_000, 160}, {"viamedia", 1_000, 160}} {
		t.Run(x.policy, func(t *testing.T) {
			c := small(x.policy)
			c.frontends, c.backends, c.k, c.load, c.hotTimes = 500, 50_000, 100, "document", 10
			require.NoError(t, c.resolve())
			s, err := newSimulation(c)
			require.NoError(t, err)
			f, b := uint64(c.frontends), uint64(c.backends)
			t.Logf("%d bytes a frontend, %d a backend, %d a pair", s.memory.frontends/f, s.memory.backends/b, s.memory.pairs/f/100)
			require.LessOrEqual(t, s.memory.frontends/f, x.frontend)
			require.LessOrEqual(t, s.memory.backends/b, x.backend)
			require.LessOrEqual(t, s.memory.pairs/f/100, uint64(100))
		})
	}
}

func TestFailedBackendsGetNothingAndComeBack(t *testing.T) {
	c := small("p2c")
	c.scenario, c.duration, c.warmup = "failures", 20*time.Second, 0
	require.NoError(t, c.resolve())
	s, err := newSimulation(c)
	require.NoError(t, err)
	for f := range s.frontends {
		s.join(int32(f))
	}
	servedOf := func() (n uint32) {
		for i := range s.backends {
			if s.backends[i].state == down {
				n += s.backends[i].served
			}
		}
		return n
	}
	at := func(end float64) {
		for s.step(int64(end * 1e9)) {
		}
	}
	at(6)
	before := servedOf()
	require.Positive(t, before)
	at(14)
	require.Equal(t, before, servedOf())
	gone := s.result(0)
	at(20)
	require.Zero(t, servedOf(), "all are up")
	require.Equal(t, gone.counts.failures, s.result(0).counts.failures, "requests fail only at the failure")
}

func TestEventsComeInOrder(t *testing.T) {
	gen := rand.New(rand.NewPCG(1, 2))
	var s schedule
	var want []event
	for range 3000 {
		e := event{gen.Int64N(500), gen.Uint64N(50)}
		s.push(e)
		want = append(want, e)
		if gen.IntN(3) == 0 {
			slices.SortFunc(want, func(a, b event) int {
				if a.before(b) {
					return -1
				}
				return 1
			})
			require.Equal(t, want[0], s.pop())
			want = want[1:]
		}
	}
	kind, generation, index := event{0, packed(frontendMoves, 1<<generationBits-1, math.MaxInt32)}.unpack()
	require.Equal(t, frontendMoves, kind)
	require.EqualValues(t, 1<<generationBits-1, generation)
	require.EqualValues(t, math.MaxInt32, index)
}

func TestPairsAreAMap(t *testing.T) {
	gen := rand.New(rand.NewPCG(1, 2))
	p := pairs{}
	type pair struct{ f, b int32 }
	model := map[pair]int32{}
	for range 200_000 {
		x := pair{gen.Int32N(60), gen.Int32N(60)}
		if gen.IntN(100) < 55 {
			require.Equal(t, model[x] == 0, p.add(x.f, x.b, 7))
			model[x]++
		} else {
			slot, last := p.remove(x.f, x.b)
			require.Equal(t, model[x] > 0, slot == 7)
			require.Equal(t, model[x] == 1, last)
			if model[x] > 0 {
				model[x]--
			}
			if model[x] == 0 {
				delete(model, x)
			}
		}
		require.Equal(t, model[x], p.lanesOf(x.f, x.b))
		require.Len(t, p, len(model))
	}
}

// Commands of README.md reproduce its figures.
func TestFiguresOfThePage(t *testing.T) {
	page, err := os.ReadFile("README.md")
	require.NoError(t, err)
	text := strings.Join(strings.Fields(string(page)), " ")
	for _, x := range []struct {
		args, column, value, sentence string
	}{
		{"-frontends 500 -backends 1000 -k 2 -subset random -load 0.05 -scenario zone -borrow", "refused %", "2.82", "8.1 % of the requests refused, 2.8 % with borrowing"},
		{"-frontends 2000 -backends 1000000 -cells 200 -duration 100ms -warmup 0s", "announced s", "0.15", "half of them know it in 0.15 s, and all in 9 s"},
	} {
		require.Contains(t, text, x.args)
		require.Contains(t, text, x.sentence)
		var out bytes.Buffer
		require.NoError(t, run(&out, io.Discard, strings.Fields(x.args)))
		lines := strings.Split(out.String(), "\n")
		column := slices.Index(strings.Split(lines[0], " | "), x.column)
		require.Equal(t, x.value, strings.Split(lines[2], " | ")[column], x.args)
	}
}

func TestInvalidFlags(t *testing.T) {
	for args, want := range map[string]string{
		"-frontends 0":             "0 frontends",
		"-policy best":             "must be some of slots",
		"-truth -policy slots,p2c": "-truth -policy p2c",
		"-subset best":             "must be some of",
		"-load 3":                  "-load",
		"-load much":               "-load",
		"-scenario quake":          "-scenario",
		"-k x":                     "must be numbers",
		"-k 0":                     "must be numbers",
		"-hot 0.2":                 "-hot",
		"-zones -cells 2":          "-zones",
		"-duration -1s":            "-duration",
		"stray":                    `unexpected argument "stray"`,
	} {
		require.ErrorContains(t, run(io.Discard, io.Discard, strings.Fields(args)), want, args)
	}
}
