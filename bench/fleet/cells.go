package main

// A cell is a part of the fleet whose frontends use only its backends. These are a table of
// columns and rows: the backends of a column hold the same documents, a row holds all of them.
// A client has a pool for each column with a subset of the column's rows. A request is for one
// document, so the requests to different columns are independent, and the simulation counts
// each pool as a frontend.
//
// Frontend f belongs to group f modulo the number of groups, group g is column g modulo the
// columns of cell g / columns, and has consecutive backends.

// groups returns the number of columns of all cells.
func (c *config) groups() int { return c.cells * c.columns }

// losesCell reports whether the scenario is the loss of cell 0.
func (c *config) losesCell() bool { return c.scenario == "cell" || c.scenario == "neighbour" }

// cellBackends returns the number of backends of a cell.
func (c *config) cellBackends() int { return c.backends / c.cells }

// groupOf returns the group whose backends a frontend uses: its own, or if its cell is lost
// the same column of another cell. These are all other cells in turn, or the neighbour.
func (s *simulation) groupOf(frontend int) int {
	groups := s.c.groups()
	group := frontend % groups
	if !s.c.losesCell() || s.c.cells == 1 || group >= s.c.columns || s.backends[0].state != down {
		return group
	}
	cell := 1
	if s.c.scenario == "cell" {
		cell += frontend / groups % (s.c.cells - 1)
	}
	return cell*s.c.columns + group
}

// planCell schedules the loss and the return of cell 0. Its frontends learn of them within
// learnSpread.
func (s *simulation) planCell(lost, back int64) {
	for b := range s.c.cellBackends() {
		s.schedule.push(event{lost, packed(backendFails, 0, int32(b))})
		s.schedule.push(event{back, packed(backendReturns, 0, int32(b))})
	}
	for f := range s.c.frontends {
		if f%s.c.groups() < s.c.columns {
			for _, at := range [...]int64{lost, back} {
				s.schedule.push(event{at + 1 + s.gen.Int64N(learnSpread), packed(frontendMoves, 0, int32(f))})
			}
		}
	}
}

// The announcement of new documents is a key in an etcd. Without cells all backends watch it.
// Otherwise one backend of each cell copies it to the etcd of the cell, which the others watch.
const (
	etcdCommit = 10e6 // nanoseconds of a write
	etcdNotify = 50e3 // nanoseconds that a notification occupies an etcd: measured with etcd 3.4
	relayTTL   = 10e9 // nanoseconds after which another backend copies, if this one has failed
)

// announce returns the times in nanoseconds at which the backends learn of an announcement
// while failShare of the relays have failed.
func (s *simulation) announce() (heard times) {
	for cell := range s.c.cells {
		at := int64(etcdCommit)
		if s.c.cells > 1 {
			at += int64(cell+1)*etcdNotify + 2*trip + etcdCommit
			if s.gen.Float64() < failShare {
				at += s.gen.Int64N(relayTTL)
			}
		}
		for i := range s.c.cellBackends() {
			heard = append(heard, at+int64(i+1)*etcdNotify+trip)
		}
	}
	return heard
}
