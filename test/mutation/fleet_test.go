package mutation

// fleetMutations change the figures of the fleet simulator.
var fleetMutations = []mutation{
	{
		name: "the heap of events is in reverse order", file: "bench/fleet/events.go",
		old: "return e.at < f.at || ", new: "return e.at > f.at || ",
		pkg: "./bench/fleet", run: "TestEventsComeInOrder|TestMD1QueueHasTheoreticalWait",
	},
	{
		name: "frontends do not relay the gossip", file: "bench/fleet/gossip.go",
		old: "	if r.relays > 0 {", new: "	if r.relays < 0 {",
		pkg: "./bench/fleet", run: "TestTablesAreAsFreshAsTheGossipAllows",
	},
	{
		name: "an attempt without a token is admitted", file: "bench/fleet/backend.go",
		old: "s.rate.Take(s.now, b.bucket, 1, 0); !ok {", new: "s.rate.Take(s.now, b.bucket, 1, 0); !ok && b == nil {",
		pkg: "./bench/fleet", run: "TestTokensLimitTheRateOfABackend",
	},
}
