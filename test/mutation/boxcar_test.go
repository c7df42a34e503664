package mutation

// boxcarMutations disable load balancing, retry and security rules of boxcarrpc.
var boxcarMutations = []mutation{
	{
		name: "a server that fails all requests fast is not ejected", sample: true, file: "boxcarrpc/core/health.go",
		old: "	if !p.trusted || l.isOutlier(p) {", new: "	if p == nil {",
		pkg: "./boxcarrpc/core", run: "TestTrapABlackHoleIsLeftOut",
	},
	{
		name: "all servers are ejected", file: "boxcarrpc/core/health.go",
		old: " || l.ejected >= max(1, l.members/ejectPart) ||", new: " ||",
		pkg: "./boxcarrpc/core", run: "TestNoMoreThanAThirdIsEjected",
	},
	{
		name: "the last live server is ejected", file: "boxcarrpc/core/health.go",
		old: " || !l.hasOtherSound(peer) {", new: " {",
		pkg: "./boxcarrpc/core", run: "TestTheLastLiveServerIsUsed",
	},
	{
		name: "a new failing server gets slots of healthy servers", file: "boxcarrpc/core/ladder.go",
		old: "	case proven && p.held > 0:", new: "	case proven && p.held < 0:",
		pkg: "./boxcarrpc/core", run: "TestTrapANewBlackHoleGetsLittle",
	},
	{
		name: "all clients reconnect to a restarted server at once", file: "boxcarrpc/core/peers.go",
		old: "		due += int64(uniform(rng, welcomeWithin))\n", new: "",
		pkg: "./boxcarrpc/core", run: "TestTrapTheRestartHerd",
	},
	{
		name: "a silent server occupies a lease request", file: "boxcarrpc/core/peers.go",
		old: "		l.asking--\n		l.late++\n", new: "		l.late++\n",
		pkg: "./boxcarrpc/core", run: "TestSilentServersDoNotStarveTheOthers",
	},
	{
		name: "a subset without a free slot borrows nothing", file: "boxcarrpc/core/subset.go",
		old: "short := l.starved && ", new: "short := false && ",
		pkg: "./boxcarrpc/core", run: "TestAFullSubsetBorrows",
	},
	{
		name: "a client with stable leases keeps asking for others", file: "boxcarrpc/core/lease_seeker.go",
		old: "	if r.level < 62 {", new: "	if r.level < 1 {",
		pkg: "./boxcarrpc/core", run: "TestChurnEndsAndAFlatLadderAsksOnceAMinute",
	},
	{
		name: "server capacity does not weigh the slots", file: "boxcarrpc/core/weight.go",
		old: "		number = int32(int64(number) * weightUnit / p.weight())\n", new: "",
		pkg: "./boxcarrpc/core", run: "TestTrapMixedHardware",
	},
	{
		name: "slots of other zones are used like those of the zone", file: "boxcarrpc/core/weight.go",
		old: "		number += farRaise\n", new: "",
		pkg: "./boxcarrpc/core", run: "TestNearSlotsAreUsedFirst",
	},
	{
		name: "requests stay in a zone with too much load", file: "boxcarrpc/core/zone.go",
		old: " || l.spilling && load*averageScale > l.farLoad", new: "",
		pkg: "./boxcarrpc/core", run: "TestRequestsLeaveALoadedZone",
	},
	{
		name: "the least recently used slot is preferred", file: "boxcarrpc/core/ladder.go",
		old: "		l.order++\n		s.order = l.order\n		l.insert(entry)", new: "		l.order++\n		s.order = 1<<62 - l.order\n		l.insert(entry)",
		pkg: "./boxcarrpc/core", run: "TestTrapPreferenceIsNoSelfKeepingOverload",
	},
	{
		name: "a silent connection is not closed", file: "boxcarrpc/core/liveness.go",
		old: "	case pending && silence >= s.timeout:\n		return Dead", new: "	case pending && silence >= s.timeout:\n		return Fine",
		pkg: "./boxcarrpc/core", run: "TestLiveness$",
	},
	{
		name: "a half-open connection is not detected", file: "boxcarrpc/core/liveness.go",
		old: "	case now-s.wrote >= s.keepAlive, !pending && (silence >= s.keepAlive || ", new: "	case !pending && (",
		pkg: "./boxcarrpc/core", run: "TestLiveness$",
	},
	{
		name: "a request that the server may have processed is retried", sample: true, file: "boxcarrpc/pool_call.go",
		old: "(!written || r.rule.Idempotent) && ", new: "",
		pkg: "./boxcarrpc", run: "TestALostRequestIsRepeatedOnlyIfItsMethodAllows",
	},
	{
		name: "a released slot is not given to a waiting call", file: "boxcarrpc/pool_slots.go",
		old: "	if len(s.mu.waiters) > 0 {", new: "	if false {",
		pkg: "./boxcarrpc", run: "TestSlotsKeepTheirInvariants",
	},
	{
		name: "a replaced slot is not given back to its server", file: "boxcarrpc/pool_slots.go",
		old: "	if due {", new: "	if due && !gone {",
		pkg: "./boxcarrpc", run: "TestSlotsKeepTheirInvariants",
	},
	{
		name: "a rejected request is reported as processed", file: "boxcarrpc/server_call.go",
		old: "	c.out.Response(lane.number, 0, wire.Response{", new: "	c.out.Response(lane.number, wire.FlagProcessed, wire.Response{",
		pkg: "./boxcarrpc", run: "TestMaxInFlightBoundsTheRequests",
	},
	{
		name: "the rate limit per client is not enforced", file: "boxcarrpc/budget/admission.go",
		old: "	case options.ClientRate > 0 && !g.allowClient(now, client, batch):", new: "	case g == nil:",
		pkg: "./boxcarrpc/budget", run: "TestAGateTracksClients",
	},
	{
		name: "the gRPC listener enforces no limits", file: "docservice/server/grpcserver/protocol.go",
		old: "	if leave, err = g.Boxcar().Admit(client, batch); err != nil {", new: "	if _, leave = client, func() {}; err != nil {",
		pkg: "./docservice/server/grpcserver", run: "TestLimitsOfADaemon",
	},
}
