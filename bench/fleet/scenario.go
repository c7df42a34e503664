package main

// The times of events as shares of the measured time, and their durations.
const (
	failAt, returnAt = 0.25, 0.75
	failShare        = 0.01 // of the backends

	rollingGroups = 20
	rollingDrain  = 1e9 // nanoseconds from the drain to the end
	rollingDown   = 2e9

	resizeAt     = 0.5
	resizeSpread = 5e9 // time in which the frontends learn of it
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
	case "small":
		if backend == 3 {
			return 0.5
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

// plan schedules the events of the scenario.
func (s *simulation) plan() {
	from, length := int64(s.c.warmup), float64(s.c.duration)
	at := func(share float64) int64 { return from + int64(share*length) }
	switch s.c.scenario {
	case "failures":
		for _, b := range s.gen.Perm(s.existing)[:max(1, int(failShare*float64(s.existing)))] {
			s.schedule.push(event{at(failAt), packed(backendFails, 0, int32(b))})
			s.schedule.push(event{at(returnAt), packed(backendReturns, 0, int32(b))})
		}
	case "rolling":
		for b := range s.existing {
			// Groups of consecutive backends, like a deployment by rack.
			group := b * rollingGroups / s.existing
			start := at(float64(group) / rollingGroups)
			s.schedule.push(event{start, packed(backendDrains, 0, int32(b))})
			s.schedule.push(event{start + rollingDrain, packed(backendFails, 0, int32(b))})
			s.schedule.push(event{start + rollingDrain + rollingDown, packed(backendReturns, 0, int32(b))})
		}
	case "resize":
		for b := s.existing; b < len(s.backends); b++ {
			s.schedule.push(event{at(resizeAt), packed(backendReturns, 0, int32(b))})
		}
		for f := range s.c.frontends {
			s.schedule.push(event{at(resizeAt) + 1 + s.gen.Int64N(resizeSpread), packed(frontendResizes, 0, int32(f))})
		}
	}
}
