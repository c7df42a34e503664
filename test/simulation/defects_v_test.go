package simulation

// issueV are the defects of Boxcar, gRPC and HTTP.
var issueV = []defect{
	{
		id: "V1", what: "the charge of an answer over gRPC that was aborted is not released",
		edits: []edit{{"docservice/server/grpcserver/response.go", "		if call.response != nil && !call.sending {\n", "		if call.response != nil && call.conn == nil {\n"}},
		unit:  "./docservice/server/grpcserver TestAbortedResponsesOverGRPCAreReleased",
	},
	{
		id: "V2", what: "servers that do not answer use up the lease requests",
		edits: []edit{{"boxcarrpc/core/peers.go", "		l.asking--\n		l.late++\n", "		l.late++\n"}},
		unit:  "./boxcarrpc/core TestSilentServersDoNotStarveTheOthers",
	},
	{
		id: "V2-live", what: "servers that do not answer count as live",
		edits: []edit{{"boxcarrpc/core/weight.go", "	if live && p.request != overdue {\n", "	if live || p.leases() {\n"}},
		unit:  "./boxcarrpc/core TestSilentServersDoNotStarveTheOthers",
	},
	{
		id: "V3", what: "a client that only receives sends no ping, and the server ends its connection",
		edits: []edit{{"boxcarrpc/core/liveness.go", "	case now-s.wrote >= s.keepAlive, !pending", "	case !pending"}},
		unit:  "./boxcarrpc TestAClientThatOnlyReceivesStaysConnected",
	},
	{
		id: "V4", what: "sessions are not verified when the authorities change",
		edits: []edit{{"boxcarrpc/session/session.go", "		if changed || s.Due(now.Add(ahead)) {\n", "		if changed && s.Due(now.Add(ahead)) {\n"}},
		unit:  "./boxcarrpc/session TestRandomRevocations",
		fleet: true,
	},
	{
		id: "V4-age", what: "connections over HTTP have no maximum age",
		edits: []edit{{"docservice/server/session.go", "		if time.Now().After(c.Retirement()) {\n", "		if time.Now().After(c.Retirement().AddDate(100, 0, 0)) {\n"}},
		unit:  "./docservice/server/grpcserver TestConnectionsHaveAMaximumAge",
	},
	{
		id: "V5", what: "a final error does not answer a hedged call",
		edits: []edit{{"boxcarrpc/pool_hedge.go", "	return !again && errors.As(err, &e) && e.Processed\n", "	return !again && errors.As(err, &e) && e.Processed && e.Code == CodeOK\n"}},
		unit:  "./boxcarrpc TestAFinalErrorAnswersAHedgedCall",
	},
	{
		id: "V5-server", what: "a retry beside a hedge goes to the server of the hedge",
		edits: []edit{
			{"boxcarrpc/pool_hedge.go", "lane = c.slots.acquireOther(true, tried, []int32{h.servers.second})", "lane = c.slots.acquireOther(true, nil)"},
			{"boxcarrpc/pool_hedge.go", "	if h.servers.second >= 0 {\n		tried", "	if h.servers.second >= 1<<30 {\n		tried"},
		},
		unit: "./boxcarrpc TestARetryAvoidsTheServerOfTheHedge",
	},
	{
		id: "V6", what: "connections that have not authenticated displace the others",
		edits: []edit{{"boxcarrpc/core/unauthenticated.go", "	if full = len(u.conns) >= u.limit; full {\n", "	if full = len(u.conns) >= u.limit<<20; full {\n"}},
		unit:  "./boxcarrpc TestSilentConnectionsAreReplaced",
	},
	{
		id: "V7", what: "a certificate without a name is accepted",
		edits: []edit{{"boxcarrpc/peer.go", "	if err := CheckIdentityName(name); err != nil {\n		return Identity{}, fmt.Errorf(", "	if err := CheckIdentityName(name); name == \"\" {\n		return Identity{}, nil\n	} else if err != nil {\n		return Identity{}, fmt.Errorf("}},
		unit:  "./boxcarrpc TestNamelessCertificatesAreRefused",
		fleet: true,
	},
	{
		id: "V8", what: "streams whose handlers run do not count for a client that has connected again",
		edits: []edit{{"boxcarrpc/admission.go", " && share.streams.Load() == 0 && ", " && "}},
		unit:  "./boxcarrpc TestStreamsOfRunningHandlersCountForTheirClient",
	},
	{
		id: "V9", what: "HTTP on loopback answers any host",
		edits: []edit{{"docservice/server/http_hosts.go", "		case r.Host != \"\" && !serves(r.Host):", "		case r.Host == \"\" && !serves(r.Host):"}},
		unit:  "./docservice/server TestLoopbackHTTPRefusesOtherHosts",
	},
	{
		id: "V10-code", what: "a handler's code above 65,535 becomes another one",
		edits: []edit{{"boxcarrpc/server_call.go", "	if code == CodeOK || code > wire.MaxCode {\n", "	if code == CodeOK || code > 1<<30+wire.MaxCode {\n"}},
		unit:  "./boxcarrpc TestHandlerErrors",
		fleet: true,
	},
	{
		id: "V10-head", what: "HEAD of a list reads the list",
		edits: []edit{{"docservice/server/http_list.go", "	if r.Method != http.MethodHead {\n", "	if r.Method != \"\" {\n"}},
		unit:  "./docservice/server TestHeadOfAListReadsNoList",
	},
	{
		id: "V10-match", what: "If-Match is ignored",
		edits: []edit{{"docservice/server/http_documents.go", "		if !httpapi.AllowsMatch(ifMatch, tag) {\n", "		if !httpapi.AllowsMatch(ifMatch, tag) && tag == \"\" {\n"}},
		unit:  "./docservice/server TestConditionsAndRanges",
	},
	{
		id: "V10-tracing", what: "tracing adds metadata above the limit",
		edits: []edit{{"boxcarrpc/boxcarotel/boxcarotel.go", "len(traced) <= boxcarrpc.MaxMetadataBytes {", "len(traced) >= 0 {"}},
		unit:  "./boxcarrpc/boxcarotel TestTracingDoesNotExceedTheLimitOfMetadata",
		fleet: true,
	},
	{
		id: "V10-admission", what: "requests for documents over HTTP are outside of admission",
		edits: []edit{{"docservice/server/http.go", "return d.admitHTTP(d.options.Tracer.HTTP(next))", "return d.options.Tracer.HTTP(next)"}},
		unit:  "./docservice/server TestHTTPRequestsForDocumentsAreAdmitted",
	},
	{
		id: "V10-bearer", what: "the scheme \"bearer\" in lower case is refused",
		edits: []edit{{"boxcarrpc/credentials/tokens.go", "strings.EqualFold(scheme, \"Bearer\")", "scheme == \"Bearer\""}},
		unit:  "./boxcarrpc/credentials Bearer",
		fleet: true,
	},
	{
		id: "V10-borrow", what: "a subset whose servers are full borrows nothing",
		edits: []edit{{"boxcarrpc/core/subset.go", "short := l.starved && ", "short := l == nil && "}},
		unit:  "./boxcarrpc/core TestAFullSubsetBorrows",
	},
	{
		id: "V11", what: "calls wait for a slot while all servers are down",
		edits: []edit{{"boxcarrpc/core/outage.go", "return c.outage.on && c.outage.over && c.held == 0", "return c.outage.on && c.outage.over && c.held < 0"}},
		unit:  "./boxcarrpc TestCallsFailAtOnceWhileAllServersAreDown",
	},
	{
		id: "V11-grace", what: "calls fail when the last server restarts, without a grace",
		edits: []edit{{"boxcarrpc/core/outage.go", "	o.over = c.members == 0 || now >= o.until\n", "	o.over = true\n"}},
		unit:  "./boxcarrpc TestARollingRestartOfTwoServersFailsNoCall|TestCallsFailAtOnce",
	},
	{
		id: "V12", what: "a client that starts while etcd is away does not use the last servers",
		edits: []edit{{"docservice/sharded/etcdclient/kept.go", "		if last, ok := k.last(); ok {\n", "		if last, ok := k.last(); ok && k.file == \"\" {\n"}},
		unit:  "./docservice/sharded/etcdclient WithoutEtcd",
	},
}
