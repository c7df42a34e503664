package main

// The times of events as shares of the measured time, and their durations.
const (
	failAt, returnAt = 0.25, 0.75
	failShare        = 0.01 // of the backends, unless -fail-share is set

	rollingGroups = 20
	rollingDrain  = 1e9 // nanoseconds from the drain to the end
	rollingDown   = 2e9

	zones     = 3
	hotZone   = 2.0 // rate of the frontends of zone 0 in relation to the others, in scenario hotzone
	greySpeed = 0.1

	learnSpread = 5e9 // time in which the frontends learn of the loss of a cell
)

// generations are the speeds of three generations of hardware, in sevenths of
// their mean.
var generations = [...]float32{3, 6, 12}

// speed returns the relative speed of a backend.
func (c *config) speed(backend int) float32 {
	switch c.scenario {
	case "slow":
		if backend%10 == 3 {
			return 0.5
		}
	case "grey":
		if float64(backend%100) < 100*c.failShare {
			return greySpeed
		}
	case "mixed", "weighted":
		return generations[backend%len(generations)] / 7
	}
	return 1
}

// weight returns a backend's weight, as frontends know it.
func (c *config) weight(backend int32) float64 {
	if c.scenario != "weighted" {
		return 1
	}
	return float64(generations[int(backend)%len(generations)] / generations[0])
}

// zoneOf returns the zone of a backend or a frontend.
func zoneOf(index int32) int32 { return index % zones }

// plan schedules the events of the scenario.
func (s *simulation) plan() {
	from, length := int64(s.c.warmup), float64(s.c.duration)
	s.watchFrom = never
	at := func(share float64) int64 { return from + int64(share*length) }
	switch s.c.scenario {
	case "zone":
		for b := 0; b < len(s.backends); b += zones {
			s.schedule.push(event{at(failAt), packed(backendFails, 0, int32(b))})
			s.schedule.push(event{at(returnAt), packed(backendReturns, 0, int32(b))})
		}
	case "failures":
		s.planFailures(backendFails, at(failAt), at(returnAt))
	case "silent":
		s.watchFrom = at(failAt)
		s.planFailures(backendSilent, at(failAt), at(returnAt))
	case "silent-start":
		s.watchFrom = 0
		s.planFailures(backendSilent, 0, never)
	case "rolling":
		for b := range len(s.backends) {
			// Groups of consecutive backends, like a deployment by rack.
			group := b * rollingGroups / len(s.backends)
			start := at(float64(group) / rollingGroups)
			s.schedule.push(event{start, packed(backendDrains, 0, int32(b))})
			s.schedule.push(event{start + rollingDrain, packed(backendFails, 0, int32(b))})
			s.schedule.push(event{start + rollingDrain + rollingDown, packed(backendReturns, 0, int32(b))})
		}
	case "cell", "neighbour":
		s.planCell(at(failAt), at(returnAt))
	}
}

// planFailures makes failShare of the backends fail, and return.
func (s *simulation) planFailures(kind eventKind, from, to int64) {
	for _, b := range s.gen.Perm(len(s.backends))[:max(1, int(s.c.failShare*float64(len(s.backends))))] {
		s.schedule.push(event{from, packed(kind, 0, int32(b))})
		s.schedule.push(event{to, packed(backendReturns, 0, int32(b))})
	}
}
