package bloom

import (
	"bytes"
	"encoding/binary"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/internal/race"
)

var comparisonFlag = flag.Bool("comparison", false, "run the whole comparison of rankings and print its table")

// A comparison simulates a store of tables of 64, 8, 2 and 1 units. It reads for some
// virtual time under a ranking that decides which pages are in memory, then counts
// table probes per get. All rankings use the same loader (choose and carryOut, one pass
// per second), the same memory and the same lookups.
//
// Print the complete table with
//
//	go test ./bloom -run TestComparison -comparison -v
type comparison struct {
	unitKeys, pageBytes int
	getsPerSecond       int
	warmUp, measured    int // seconds
}

// A ranking scores pages and decides whether one page should replace another.
type ranking struct {
	name       string
	worth      func(s *simulation, p *candidate) float64 // nil: usefulness
	worthwhile func(in, out *candidate) bool
}

func anyBetter(in, out *candidate) bool { return in.worth > out.worth }
func never(_, _ *candidate) bool        { return false }

var rankings = []ranking{
	{"useful", nil, worthwhile},
	{"LRU", lastAsked, anyBetter},
	{"none", firstAsked, never}, // pages are loaded in the order of their first lookup and stay
	{"newest", func(*simulation, *candidate) float64 { return 0 }, anyBetter}, // by table
}

func lastAsked(s *simulation, p *candidate) float64 { return float64(s.last[p.filter][p.page]) }

func firstAsked(s *simulation, p *candidate) float64 {
	if first := s.first[p.filter][p.page]; first > 0 {
		return -float64(first)
	}
	return math.Inf(-1)
}

// simulation is a miniature store: tables, newest first, and their Manager.
type simulation struct {
	comparison
	keys    int
	tables  []simulated
	manager *Manager
	ranking ranking
	key     func(i int, missing bool) []byte
	clock   int64 // lookups so far
	first   map[*Filter][]int64
	last    map[*Filter][]int64
}

type simulated struct {
	filter   *Filter
	encoded  []byte
	from, to int // range of its keys
	min, max []byte
}

// timeOrdered returns keys that increase with the time of writing; a missing key lies
// between two existing ones.
func timeOrdered(i int, missing bool) []byte {
	n := uint64(2 * i)
	if missing {
		n++
	}
	return binary.BigEndian.AppendUint64(nil, n)
}

// hashed returns keys in random order.
func hashed(i int, missing bool) []byte {
	return binary.BigEndian.AppendUint64(nil, avalanche(binary.BigEndian.Uint64(timeOrdered(i, missing))+1))
}

// tables builds the tables of a store, newest first, without opening their filters.
func (c comparison) tables(key func(int, bool) []byte) (tables []simulated) {
	from := 0
	for _, units := range []int{64, 8, 2, 1} {
		to := from + units*c.unitKeys
		tables = append([]simulated{c.table(key, from, to)}, tables...)
		from = to
	}
	return tables
}

// table builds a table of the given keys.
func (c comparison) table(key func(int, bool) []byte, from, to int) simulated {
	var own [][]byte
	for i := from; i < to; i++ {
		own = append(own, key(i, false))
	}
	own = sorted(own)
	return simulated{nil, build(&Options{PageBytes: c.pageBytes}, own), from, to, own[0], own[len(own)-1]}
}

func (c comparison) start(t testing.TB, key func(int, bool) []byte, tables []simulated, r ranking, share float64) *simulation {
	s := &simulation{comparison: c, key: key, ranking: r, first: map[*Filter][]int64{}, last: map[*Filter][]int64{}}
	var bytes, indexBytes int64
	for _, table := range tables {
		table.filter = open(t, table.encoded)
		s.tables = append(s.tables, table)
		s.keys = max(s.keys, table.to)
		s.follow(table.filter)
		bytes += table.filter.Stats().PageBytes
		indexBytes += table.filter.Stats().IndexBytes
	}
	// The indexes are the same for all rankings and larger than with the default page
	// size, so they do not count towards the share.
	s.manager = NewManager(indexBytes + int64(share*float64(bytes)))
	s.manager.Track(s.filters()...)
	return s
}

func (s *simulation) follow(f *Filter) {
	s.first[f], s.last[f] = make([]int64, len(f.pages)), make([]int64, len(f.pages))
}

func (s *simulation) filters() (filters []*Filter) {
	for _, table := range s.tables {
		filters = append(filters, table.filter)
	}
	return filters
}

// second runs one pass of the loader.
func (s *simulation) second(t testing.TB) {
	m := s.manager
	m.mu.Lock()
	defer m.mu.Unlock()
	m.count(time.Unix(s.clock/int64(s.getsPerSecond), 0))
	pages := m.candidates()
	for i := range pages {
		if s.ranking.worth != nil {
			pages[i].worth = s.ranking.worth(s, &pages[i])
		}
	}
	_, err := m.carryOut(choose(pages, m.room(), passBytes, s.ranking.worthwhile))
	require.NoError(t, err)
}

// get looks up key i, or a missing key next to it, and returns the number of tables
// searched.
func (s *simulation) get(i int, missing bool) (probes int) {
	s.clock++
	key := s.key(i, missing)
	h := HashKey(key)
	for _, table := range s.tables {
		if bytes.Compare(key, table.min) < 0 || bytes.Compare(key, table.max) > 0 {
			continue
		}
		f := table.filter
		page := f.index.find(key)
		s.last[f][page] = s.clock
		if s.first[f][page] == 0 {
			s.first[f][page] = s.clock
		}
		probe := f.Probe(key)
		if !probe.MayContain(h) {
			continue
		}
		probes++
		if !missing && i >= table.from && i < table.to {
			break
		}
		probe.Missed(key)
	}
	return probes
}

// run reads for some seconds and returns probes per get.
func (s *simulation) run(t testing.TB, seconds int, random *rand.Rand, pick func() int, missing float64) float64 {
	probes := 0
	for range seconds {
		for range s.getsPerSecond {
			probes += s.get(pick(), random.Float64() < missing)
		}
		s.second(t)
	}
	return float64(probes) / float64(seconds*s.getsPerSecond)
}

// A workload picks keys; higher numbers were written later.
type workload struct {
	name string
	key  func(i int, missing bool) []byte
	pick func(random *rand.Rand, keys int) func() int
}

func uniform(random *rand.Rand, keys int) func() int {
	return func() int { return random.IntN(keys) }
}

func zipfian(random *rand.Rand, keys int) func() int {
	z := rand.NewZipf(random, 1.01, 1, uint64(keys-1))
	return func() int { return int(avalanche(z.Uint64()) % uint64(keys)) } // hot keys are spread over the key range
}

// newestFirst reads the key written n writes ago with a probability proportional to
// 1/n.
func newestFirst(random *rand.Rand, keys int) func() int {
	z := rand.NewZipf(random, 1.01, 1, uint64(keys-1))
	return func() int { return keys - 1 - int(z.Uint64()) }
}

var workloads = []workload{
	{"uniform", hashed, uniform},
	{"zipfian", hashed, zipfian},
	{"newest first, time-ordered keys", timeOrdered, newestFirst},
	{"newest first, hashed keys", hashed, newestFirst},
}

// TestComparison: the ranking by usefulness needs at most 1 % more table probes than
// any other ranking, for every workload, share of missing keys and memory size.
func TestComparison(t *testing.T) {
	if race.Enabled {
		t.Skip("one goroutine, twenty times slower with the race detector: make test-all also runs it without")
	}
	c := comparison{unitKeys: 300, pageBytes: 64, getsPerSecond: 1000, warmUp: 6, measured: 6}
	shares, compared := []float64{0.5, 0.25, 0.1}, rankings[:3]
	if *comparisonFlag {
		c = comparison{unitKeys: 4000, pageBytes: 512, getsPerSecond: 5000, warmUp: 60, measured: 30}
		shares, compared = []float64{1, 0.5, 0.25, 0.1}, rankings
	}
	var out strings.Builder
	fmt.Fprintf(&out, "%-32s %8s %7s", "table probes per get", "missing", "memory")
	for _, r := range compared {
		fmt.Fprintf(&out, " %8s", r.name)
	}
	for _, w := range workloads {
		tables := c.tables(w.key)
		for _, missing := range []float64{0, 0.5, 1} {
			for _, share := range shares {
				fmt.Fprintf(&out, "\n%-32s %7.0f%% %6.0f%%", w.name, 100*missing, 100*share)
				useful := 0.0
				for i, r := range compared {
					random := rand.New(rand.NewPCG(1, 2)) // the same lookups for all
					s := c.start(t, w.key, tables, r, share)
					pick := w.pick(random, s.keys)
					s.run(t, c.warmUp, random, pick, missing)
					probes := s.run(t, c.measured, random, pick, missing)
					fmt.Fprintf(&out, " %8.3f", probes)
					if i == 0 {
						useful = probes
					} else if useful > 1.01*probes+1e-9 {
						t.Errorf("%s, %v missing, %v of the memory: useful %.4f, %s %.4f",
							w.name, missing, share, useful, r.name, probes)
						out.WriteString("!")
					}
				}
			}
		}
	}
	t.Log("\n" + out.String())
}
