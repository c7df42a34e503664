package placement

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/cockroachdb/errors"
)

// Limits of the input of Plan.
const (
	// MaxShards bounds the shards of a collection.
	MaxShards = 1 << 16
	// MaxColumns bounds the columns.
	MaxColumns = 1 << 12
	// MaxBytes bounds the size of a shard and the limit of a column: 1 EiB.
	MaxBytes = 1 << 60
)

// ErrNoPlan is the error if the columns have no room for a shard that must be moved or placed.
var ErrNoPlan = errors.New("placement: no feasible plan")

// Column is a set of machines that hold the same shards.
type Column struct {
	Name string
	// Limit is the number of bytes that one machine of the column may hold. It is never
	// exceeded.
	Limit int64
	// Weight is the column's share of the bytes in relation to the weights of the others.
	// A column with weight 0 is drained: all its shards are moved away.
	Weight int
}

// Shard is a shard and its place.
type Shard struct {
	// Bytes is the size. A shard counts as at least one byte.
	Bytes int64
	// Column is the name of the column that holds the shard. An empty name is a shard
	// without a place, as is the name of a column that does not exist.
	Column string
}

// Move is the change of a shard's place.
type Move struct {
	Shard int    `json:"shard"` // index
	From  string `json:"from"`
	To    string `json:"to"`
	Bytes int64  `json:"bytes"`
}

// Plan returns the moves that make the placement of shards even. Moves are to be started in
// the order returned, each when the receiving column has room. If a shard cannot be placed,
// or cannot leave a drained or full column, the error is ErrNoPlan and names it.
func Plan(shards []Shard, columns []Column) ([]Move, error) {
	p, err := newPlan(shards, columns)
	if err != nil {
		return nil, err
	}
	if err := p.placeAll(); err != nil {
		return nil, err
	}
	p.relieve()
	p.fill()
	return p.moves(), nil
}

// plan is the state of a Plan. The excess of a column is its load minus its share.
type plan struct {
	shards   []Shard
	columns  []column
	at       []int // by shard: the column, or unplaced
	order    []int // shards in the order of their first move
	heaviest int64
}

type column struct {
	Column
	load   int64
	share  int64
	shards []int
}

const unplaced = -1

func (c *column) excess() int64 { return c.load - c.share }

// accepts reports whether a column may receive that many bytes.
func (c *column) accepts(bytes int64) bool { return c.Weight > 0 && c.load+bytes <= c.Limit }

// bytes returns the size of a shard. No shard has size 0, so that each move changes a load.
func (p *plan) bytes(shard int) int64 { return max(p.shards[shard].Bytes, 1) }

func newPlan(shards []Shard, columns []Column) (*plan, error) {
	if len(shards) > MaxShards || len(columns) > MaxColumns {
		return nil, fmt.Errorf("placement: %d shards and %d columns: the limits are %d and %d", len(shards), len(columns), MaxShards, MaxColumns)
	}
	p := &plan{shards: shards, at: make([]int, len(shards))}
	byName := make(map[string]int, len(columns))
	for _, c := range columns {
		if _, found := byName[c.Name]; found || c.Name == "" || c.Limit < 0 || c.Limit > MaxBytes || c.Weight < 0 || c.Weight > maxWeight {
			return nil, fmt.Errorf("placement: column %q with a limit of %d bytes and weight %d: names are unique and not empty, limits between 0 and %d, weights between 0 and %d",
				c.Name, c.Limit, c.Weight, int64(MaxBytes), maxWeight)
		}
		byName[c.Name] = len(p.columns)
		p.columns = append(p.columns, column{Column: c})
	}
	// Columns with equal excess are chosen in the order of their names.
	slices.SortFunc(p.columns, func(a, b column) int { return cmp.Compare(a.Name, b.Name) })
	for i, c := range p.columns {
		byName[c.Name] = i
	}
	for i, s := range shards {
		if s.Bytes < 0 || s.Bytes > MaxBytes/MaxShards {
			return nil, fmt.Errorf("placement: shard %d has %d bytes: the limit is %d", i, s.Bytes, int64(MaxBytes/MaxShards))
		}
		p.heaviest = max(p.heaviest, p.bytes(i))
		p.at[i] = unplaced
		if c, found := byName[s.Column]; found {
			p.put(i, c)
		}
	}
	p.setShares()
	return p, nil
}

// maxWeight bounds the weight of a column.
const maxWeight = 1 << 20

// setShares divides the bytes of all shards between the columns by weight. A share leaves
// room for one more of the heaviest shards; what a column cannot take on account of its
// limit is divided between the others.
func (p *plan) setShares() {
	var rest float64
	var open []int
	weights := 0
	for i := range p.shards {
		rest += float64(p.bytes(i))
	}
	for i := range p.columns {
		if c := &p.columns[i]; c.Weight > 0 {
			open = append(open, i)
			weights += c.Weight
		}
	}
	room := func(i int) float64 { return float64(max(p.columns[i].Limit-p.heaviest, 0)) }
	// In this order, a column that is not filled up by its part is followed by none that is.
	slices.SortStableFunc(open, func(a, b int) int {
		return cmp.Compare(room(a)/float64(p.columns[a].Weight), room(b)/float64(p.columns[b].Weight))
	})
	for _, i := range open {
		c := &p.columns[i]
		part := min(rest*float64(c.Weight)/float64(weights), room(i))
		c.share = int64(math.Round(part)) // shards of unknown size count as one byte: a share may be small
		rest -= part
		weights -= c.Weight
	}
}

// placeAll moves the shards that cannot stay where they are: those without a place, in a
// drained column, or in a column above its limit. The heaviest shards are first.
func (p *plan) placeAll() error {
	order := make([]int, len(p.shards))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(p.bytes(b), p.bytes(a)) })
	for _, s := range order {
		if !p.mustMove(s) {
			continue
		}
		to := p.emptiest(p.bytes(s))
		if to == unplaced {
			return errors.Wrapf(ErrNoPlan, "no column has room for the %d bytes of shard %d: add a column, or raise a limit", p.bytes(s), s)
		}
		p.move(s, to)
	}
	return nil
}

func (p *plan) mustMove(shard int) bool {
	at := p.at[shard]
	return at == unplaced || p.columns[at].Weight == 0 || p.columns[at].load > p.columns[at].Limit
}

// emptiest returns the column with the least excess that accepts that many bytes.
func (p *plan) emptiest(bytes int64) int {
	best := unplaced
	for i := range p.columns {
		if p.columns[i].accepts(bytes) && (best == unplaced || p.columns[i].excess() < p.columns[best].excess()) {
			best = i
		}
	}
	return best
}

// fullest returns the column with the greatest excess.
func (p *plan) fullest() int {
	best := unplaced
	for i := range p.columns {
		if best == unplaced || p.columns[i].excess() > p.columns[best].excess() {
			best = i
		}
	}
	return best
}

// relieve takes shards from columns whose excess is greater than the heaviest shard. Each
// goes to the column with the least excess, so that fill has less to do.
func (p *plan) relieve() {
	for {
		from := p.fullest()
		if from == unplaced || p.columns[from].excess() <= p.heaviest || !p.moveOne(from) {
			return
		}
	}
}

// fill gives shards to columns that lack more than the heaviest shard.
func (p *plan) fill() {
	for {
		to, from := p.emptiest(1), p.fullest()
		if to == unplaced || -p.columns[to].excess() <= p.heaviest || p.columns[from].excess() <= 0 || !p.moveOne(from) {
			return
		}
	}
}

// moveOne moves a shard from a column to the one with the least excess: the heaviest that
// takes neither of them past its share, or else the lightest.
func (p *plan) moveOne(from int) bool {
	to := p.emptiest(1)
	if to == unplaced || p.columns[to].excess() >= 0 {
		return false
	}
	most := min(-p.columns[to].excess(), p.columns[from].excess())
	best := unplaced
	for _, s := range p.columns[from].shards {
		if best == unplaced || p.fitsBetter(s, best, most) {
			best = s
		}
	}
	if best == unplaced || !p.columns[to].accepts(p.bytes(best)) {
		return false
	}
	p.move(best, to)
	return true
}

// fitsBetter reports whether shard a is a better choice than b if most bytes are to be moved.
func (p *plan) fitsBetter(a, b int, most int64) bool {
	sizeA, sizeB := p.bytes(a), p.bytes(b)
	switch {
	case sizeA <= most && sizeB <= most:
		return sizeA > sizeB
	case sizeA > most && sizeB > most:
		return sizeA < sizeB
	}
	return sizeA <= most
}

func (p *plan) move(shard, to int) {
	if from := p.at[shard]; from != unplaced {
		c := &p.columns[from]
		c.load -= p.bytes(shard)
		c.shards = slices.DeleteFunc(c.shards, func(s int) bool { return s == shard })
	}
	p.put(shard, to)
	// A shard that is moved twice gets the later place in the order, when there is room.
	p.order = append(slices.DeleteFunc(p.order, func(s int) bool { return s == shard }), shard)
}

func (p *plan) put(shard, to int) {
	c := &p.columns[to]
	c.load += p.bytes(shard)
	c.shards = append(c.shards, shard)
	p.at[shard] = to
}

func (p *plan) moves() []Move {
	var moves []Move
	for _, s := range p.order {
		from, to := p.shards[s].Column, p.columns[p.at[s]].Name
		if from != to {
			moves = append(moves, Move{Shard: s, From: from, To: to, Bytes: p.shards[s].Bytes})
		}
	}
	return moves
}
