package subset

import "math/bits"

// rocksteadier groups tasks into lots of a fixed size, the last backend lot
// padded. It is a table for each frontend lot: a column for each backend lot, in
// the order in which ringsteady with backend scaling shows the lots to that
// frontend lot; in a column the lot's tasks, shuffled. A frontend has a row of
// its own, and reads along it, then along the rows below, passing over padding.
//
//	          lots   1   5   3   0   4   2
//	frontend 10     14  51  38   4  46  21    a row is found without the others
//	frontend 18     19   -  30   9  40  27
//	...
//
// A column's shuffle is keyed by both lots, not drawn from one generator for all
// columns before it: that keeps what the article asks for (the same order for
// all frontends of a lot, another one for other lots, none changed by a new
// backend lot) and costs nothing for columns that are not read.
type rocksteadier struct {
	lotSize uint64
	rows    []uint64                                         // of the frontends of a lot
	entry   func(frontendLot, backendLot, row uint64) uint64 // of a shuffled column
	lots    func(r ring, frontendLot uint64) uint64          // first place on the ring of lots
}

func newRocksteadier(seed uint64, lotSize int) rocksteadier {
	a := rocksteadier{
		lotSize: uint64(lotSize),
		rows:    make([]uint64, lotSize),
		lots: func(r ring, frontendLot uint64) uint64 {
			return startByRank(r, ceilFraction(bits.Reverse64(frontendLot), r.n))
		},
	}
	a.entry = func(frontendLot, backendLot, row uint64) uint64 {
		return shuffled(hash2(seed, frontendLot, backendLot), a.lotSize, row)
	}
	// The article's "fixed permutation" of rows. Of the two that its words allow
	// this one balances a little better (utilization 0.9451 against 0.9449 over
	// its figure 2): a lot's first frontends halve the rows, then quarter them.
	order := newRing(a.lotSize)
	for i := range a.rows {
		a.rows[i] = order.rank(uint64(i))
	}
	return a
}

func (rocksteadier) Name() string { return "rocksteadier" }

func (a rocksteadier) Subset(dst []int, frontend, frontends, backends, k int) []int {
	q := clamp(frontend, frontends, backends, k)
	if q.k == 0 {
		return dst
	}
	frontendLot, row := q.frontend/a.lotSize, a.rows[q.frontend%a.lotSize]
	columns := newRing((q.backends + a.lotSize - 1) / a.lotSize)
	place := a.lots(columns, frontendLot)
	for end := len(dst) + q.k; ; row = (row + 1) % a.lotSize {
		for range columns.n {
			var lot uint64
			lot, place = columns.next(place)
			task := lot*a.lotSize + a.entry(frontendLot, lot, row)
			if task >= q.backends {
				continue // padding
			}
			if dst = append(dst, int(task)); len(dst) == end {
				return dst
			}
		}
	}
}

// shuffled is one entry of the numbers below n, shuffled as the key says: as
// much of Fisher and Yates' shuffle as it takes to know it.
func shuffled(key, n, entry uint64) uint64 {
	var numbers [MaxLotSize]uint8
	for i := range n {
		numbers[i] = uint8(i)
	}
	g := generator(key)
	for i := range entry + 1 {
		j := i + g.below(n-i)
		numbers[i], numbers[j] = numbers[j], numbers[i]
	}
	return uint64(numbers[entry])
}
