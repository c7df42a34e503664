package mutation

// boxcarMutations are the cures of Boxcar's traps and the rules of what may be sent
// again, each taken away.
var boxcarMutations = []mutation{
	{
		name: "a black hole is not left out", file: "boxcarrpc/core/health.go",
		old: "	if !p.trusted || l.isOutlier(p) {", new: "	if p == nil {",
		pkg: "./boxcarrpc/core", run: "TestTrapABlackHoleIsLeftOut",
	},
	{
		name: "all servers are left out", file: "boxcarrpc/core/health.go",
		old: " || l.ejected >= max(1, l.members/ejectPart) {", new: " {",
		pkg: "./boxcarrpc/core", run: "TestNoMoreThanAThirdIsEjected",
	},
	{
		name: "a new black hole gets slots of servers that are well", file: "boxcarrpc/core/ladder.go",
		old: "	case proven && p.held > 0:", new: "	case proven && p.held < 0:",
		pkg: "./boxcarrpc/core", run: "TestTrapANewBlackHoleGetsLittle",
	},
	{
		name: "all clients come at once", file: "boxcarrpc/core/peers.go",
		old: "		p.welcomeAt += int64(uniform(rng, welcomeWithin))\n", new: "",
		pkg: "./boxcarrpc/core", run: "TestTrapTheRestartHerd",
	},
	{
		name: "a flat ladder asks on and on", file: "boxcarrpc/core/lease_seeker.go",
		old: "	if r.level < 62 {", new: "	if r.level < 1 {",
		pkg: "./boxcarrpc/core", run: "TestChurnEndsAndAFlatLadderAsksOnceAMinute",
	},
	{
		name: "a large server gets no more than a small one", file: "boxcarrpc/core/weight.go",
		old: "	return int32(int64(number) * weightUnit / p.weight())", new: "	return number",
		pkg: "./boxcarrpc/core", run: "TestTrapMixedHardware",
	},
	{
		name: "the slot used last is used first", file: "boxcarrpc/core/ladder.go",
		old: "		l.order++\n		s.order = l.order\n		l.insert(entry)", new: "		l.order++\n		s.order = 1<<62 - l.order\n		l.insert(entry)",
		pkg: "./boxcarrpc/core", run: "TestTrapPreferenceIsNoSelfKeepingOverload",
	},
	{
		name: "a silent connection is waited for", file: "boxcarrpc/core/liveness.go",
		old: "	case pending && silence >= s.timeout:\n		return Dead", new: "	case pending && silence >= s.timeout:\n		return Fine",
		pkg: "./boxcarrpc/core", run: "TestLiveness$",
	},
	{
		name: "a half-open connection is kept", file: "boxcarrpc/core/liveness.go",
		old: "	case !pending && (silence >= s.keepAlive || ", new: "	case !pending && (",
		pkg: "./boxcarrpc/core", run: "TestLiveness$",
	},
	{
		name: "what may have been processed is sent again", file: "boxcarrpc/pool_call.go",
		old: "(!written || c.rule.Idempotent) && ", new: "",
		pkg: "./boxcarrpc", run: "TestALostRequestIsRepeatedOnlyIfItsMethodAllows",
	},
	{
		name: "a refused request passes for processed", file: "boxcarrpc/admission.go",
		old: "	c.out.response(lane.number, 0, wire.Response{", new: "	c.out.response(lane.number, wire.FlagProcessed, wire.Response{",
		pkg: "./boxcarrpc", run: "TestMaxInFlightBoundsTheRequests",
	},
	{
		name: "a greedy client uses up the others' rate", file: "boxcarrpc/admission.go",
		old: "	case options.ClientRate > 0 && !a.allowClient(now, client):", new: "	case a == nil:",
		pkg: "./boxcarrpc", run: "TestGreedyClientIsLimitedByItsRate",
	},
	{
		name: "the gRPC listener has no limits", file: "cmd/docserviced/grpc.go",
		old: "	if leave, err = d.boxcar.Admit(client); err != nil {", new: "	if leave = func() {}; client == nil {",
		pkg: "./cmd/docserviced", run: "TestLimitsOfADaemon",
	},
}
