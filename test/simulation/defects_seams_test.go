package simulation

// seams are defects where packages meet. Some of them no unit test detects: the simulator is the
// first test of what they break.
var seams = []defect{
	{
		id: "S01", what: "a file that replaces another one is renamed before it is synced",
		edits: []edit{{"internal/vfs/atomicfile.go", "err = f.Sync()\n", "err = nil\n"}},
		unit:  "./lsm TestCrash$/power",
	},
	{
		id: "S02", what: "the directory is not synced after a file was replaced",
		edits: []edit{{"internal/vfs/atomicfile.go", "return fsys.SyncDir(filepath.Dir(name))", "_ = filepath.Dir\n	return nil"}},
		unit:  "./lsm TestCrash$/power",
	},
	{
		id: "S03", what: "a table of the index is not synced before the manifest refers to it",
		edits: []edit{{"lsm/internal/table/writer.go", "if err := w.file.Sync(); err != nil {", "if err := error(nil); err != nil {"}},
		unit:  "./lsm TestCrash$/power",
	},
	{
		id: "S04", what: "lost wake-up: a change of a collection's state wakes nothing that waits for it",
		edits: []edit{{"docservice/collection/health.go", "	close(h.mu.changed)\n	h.mu.changed = make(chan struct{})\n}", "}"}},
		unit:  "./docservice/collection TestWaiting",
	},
	{
		id: "S05", what: "lost wake-up: a released slot is not given to a waiting call",
		edits: []edit{{"boxcarrpc/pool_slots.go", "	if len(s.mu.waiters) > 0 {\n		s.serveLocked()\n", "	if len(s.mu.waiters) < 0 {\n		s.serveLocked()\n"}},
		unit:  "./boxcarrpc TestSlotsKeepTheirInvariants",
	},
	{
		id: "S06", what: "stale cache key: versions of an id in the same block have the same key in memcached, and values are not compared",
		edits: []edit{
			{"docservice/collection/cache.go", "	binary.BigEndian.PutUint16(b[24:], entry.address.Index)\n", ""},
			{"docservice/collection/cache.go", "form.Address != entry.address || !entry.place.Matches(&form) {\n		return dst", "form.Address.Segment != entry.address.Segment {\n		return dst"},
		},
		unit: "./docservice/collection TestCacheWithWrongValues|TestCacheWithAnotherHistory",
	},
	{
		id: "S07", what: "a number is held after its lease may have expired",
		edits:     []edit{{"boxcarrpc/discovery/etcd/number.go", "	if n.mu.number < 0 || !time.Now().Before(n.mu.until) {\n", "	if n.mu.number < 0 || n.mu.until.IsZero() {\n"}},
		unit:      "./boxcarrpc/discovery/etcd TestNumberIsNotHeldAfterItsTime",
		simulated: "it needs a process that is stopped for longer than the lease; the goroutines of a simulation are not",
	},
	{
		id: "S08", what: "the position of the tail is stored before the entries that it covers",
		edits: []edit{{"docservice/collection/tail.go", "	err := state.putIn(batch)\n", "	var alone lsm.Batch\n	err := errors.CombineErrors(state.putIn(&alone), f.index.Apply(&alone))\n"}},
		unit:  "./docservice/collection TestCrash|TestFault",
	},
	{
		id: "S09", what: "an id is not found while the tail has not read the queue to its end",
		edits: []edit{{"docservice/collection/notfound.go", "	case !k.reached:\n		return gapNotRead\n", ""}},
		unit:  "./docservice/collection TestNotFound",
	},
	{
		id: "S10", what: "an id is not found although the tail has not read the entry that made compaction drop its document",
		edits: []edit{{"docservice/collection/reader.go", "	case gone != nil && !isSettled(gone, position):\n		return", "	case gone != nil && !isSettled(gone, position) && g != nil:\n		return"}},
		unit:  "./docservice/collection TestCompactedVersion|TestStale|TestAway",
	},
	{
		id: "S11", what: "gc collects pinned manifests",
		edits: []edit{{"queue/publish/record.go", "	for _, p := range r.Pins {\n		refs = append(refs, p.To)\n	}\n	for _, c := range r.Canaries {\n		refs", "	for _, c := range r.Canaries {\n		refs"}},
		unit:  "./queue/publish TestInUse",
	},
	{
		id: "S12", what: "the digest of a fetched file is not compared",
		edits: []edit{{"queue/publish/replica.go", "(n != f.Size || digest != f.Digest)", "(n != f.Size || digest == f.Digest && n == 0)"}},
		unit:  "./queue/publish TestFlippedByteIsNeverFetched",
	},
	{
		id: "S13", what: "a fetched file is not synced before it is served",
		edits: []edit{{"queue/publish/replica.go", "	if err == nil {\n		err = file.Sync()\n	}\n", ""}},
		unit:  "./queue/publish TestStreamModel",
	},
	{
		id: "S14", what: "the digest of a manifest is not compared",
		edits:     []edit{{"queue/publish/manifest.go", "digest != ref.Digest {\n		return nil, corrupt(\"manifest %d has", "digest != ref.Digest && len(data) == 0 {\n		return nil, corrupt(\"manifest %d has"}},
		unit:      "./queue/publish FuzzManifestObject",
		simulated: "zstd's checksum refuses each flipped bit that changes the text, and the name of the object has the digest",
	},
	{
		id: "S15", what: "the epoch does not grow when a publisher takes over",
		edits: []edit{{"queue/publish/record.go", "	r.Epoch++\n", "	r.Epoch = max(r.Epoch, 1)\n"}},
	},
	{
		id: "S16", what: "a partly fetched file is left when its fetch fails",
		edits: []edit{{"queue/publish/replica.go", "		return errors.CombineErrors(err, r.options.FS.RemoveAll(path))\n	}\n	return nil\n}\n\n// throttled", "		return err\n	}\n	return nil\n}\n\n// throttled"}},
	},
	{
		id: "S17", what: "compaction drops a delete while a file may have the document",
		edits: []edit{{"queue/maintain/compact.go", "	if ok && (c.lost == 0 || oldest < c.lost) {\n", "	if ok && c.lost > 0 && oldest < c.lost {\n"}},
		unit:  "./queue TestReplicaServesDeletedDocument|TestCompactPartialReplica",
	},
	{
		id: "S18", what: "a merge drops tombstones although older tables have the keys",
		edits: []edit{{"lsm/compact.go", "writeTable(w, source, first, last, oldest, func()", "writeTable(w, source, first, last, oldest || len(inputs) > 1, func()"}},
		unit:  "./lsm TestModel",
	},
	{
		id: "S19", what: "an index takes over before it has the entries of the served one",
		edits: []edit{{"docservice/collection/replacement.go", "		if err := next.health.waitUntil(ctx, includes); err != nil {\n", "		if _ = includes; ctx == nil {\n"}},
		unit:  "./docservice/collection TestRebuildFromAShorterQueue",
	},
	{
		id: "S20", what: "the manifest whose files are being added is not recorded before",
		edits: []edit{{"docservice/follow/move.go", "	if err := f.change(func(c *current) { c.Next = target }); err != nil {\n", "	if err := f.change(func(c *current) { c.Next = publish.Ref{} }); err != nil {\n"}},
		unit:  "./docservice/follow TestPinAfterPartialAdvance|TestEntriesOfBadManifests",
	},
	{
		id: "S21", what: "an expired document is served",
		edits: []edit{{"docservice/collection/reader.go", "	if entry.expiry != 0 && entry.expired(r.options.Now()) {\n", "	if entry.expiry == 1 && entry.expired(r.options.Now()) {\n"}},
		unit:  "./docservice/collection Expire|Expiry",
	},
	{
		id: "S22", what: "the checksum of a document is not compared",
		edits: []edit{{"queue/internal/segment/fetch.go", "	if got != l.CRC {", "	if got != l.CRC && got == 0 {"}},
		unit:  "./queue Flip|Byte|Damage|Corrupt",
	},
	{
		// A simulation has to count requests of the store.
		id: "S23", what: "a Follower that fails retries without a pause",
		edits: []edit{{"docservice/follow/follow.go", "			pause = min(2*pause, lastBackoff)\n", "			pause = time.Millisecond\n"}},
	},
	{
		id: "S24", what: "a request that a server may have processed is sent again",
		edits: []edit{{"boxcarrpc/pool_call.go", "(!written || r.rule.Idempotent) && ", ""}},
		unit:  "./boxcarrpc TestALostRequestIsRepeatedOnlyIfItsMethodAllows",
	},
	{
		id: "S25", what: "a reservation whose request was cancelled while it waited stays in the account",
		edits: []edit{{"boxcarrpc/budget/reservation.go", "		c.waiting = slices.Delete(c.waiting, i, i+1)\n		c.forgetWaitingLocked(b)\n", "		_ = i\n"}},
		unit:  "./boxcarrpc/budget TestReservationWaitEnds|TestReservationsAreGranted",
	},
	{
		// As S25, with documents above 16 KiB.
		id: "S26", what: "the memory of a large answer is not released",
		edits: []edit{{"boxcarrpc/server_call.go", "	r.ctx.reservation.Release()\n", ""}},
		unit:  "./boxcarrpc Reservation|Budget|Memory|Unread",
	},
	{
		id: "S27", what: "the checksum of a block of the index is not compared",
		edits: []edit{{"lsm/internal/table/block.go", "return order.Uint32(b.data) == checksum.Update(seed, b.head()[4:])", "return true"}},
		unit:  "./lsm Flip|Byte|Damage|Corrupt",
	},
	{
		id: "S28", what: "the index is made from a checkpoint of a later manifest",
		edits: []edit{{"docservice/follow/plan.go", "		if number == target || number < target && ", "		if number == target || number > 0 && "}},
		unit:  "./docservice/follow TestCheckpointsThatAreUsedAndRemoved|TestModel",
	},
	{
		id: "S29", what: "a server leaves discovery only after it has stopped",
		edits:     []edit{{"cmd/internal/docserviced/serve.go", "	leave() // before the shutdown, so that no new clients come\n", "	defer leave()\n"}},
		simulated: "the order is that of package main, which no program can import",
	}, {
		id: "S30", what: "the free space of a full disk is not in the metrics",
		edits: []edit{{"docservice/server/collectors.go", "Free(dir); err == nil {", "Free(dir); err == nil && free.Bytes > 1<<20 {"}},
	},
	{
		id: "S31", what: "a column does not report that it cannot read increments",
		edits: []edit{{"docservice/follow/feed.go", "	if f.mu.problem = err; err != nil {\n", "	if err != nil {\n"}},
		unit:  "./docservice/follow TestUnreadableIncrementsAreReported",
	},
	{
		id: "S32", what: "the metric for errors of the object store is not set after the first contact",
		edits: []edit{{"docservice/server/bucketsource/followed.go", "metric.Bool(s.Error != \"\")", "metric.Bool(s.Error != \"\" && s.LastContact.IsZero())"}},
	},
	{
		id: "S33", what: "how long a server is behind is measured by two clocks",
		edits: []edit{{"docservice/follow/status.go", "		s.Lag = now.Sub(s.Behind)\n", "		s.Lag = time.Since(s.Behind)\n"}},
		unit:  "./docservice/follow TestLagByAnotherClock",
	},
	{
		id: "S34", what: "the record is not read while increments follow each other without a pause",
		edits: []edit{{"docservice/follow/increments.go", "		if !time.Now().Before(latest) {\n", "		if _ = latest; ctx.Err() != nil {\n"}},
		unit:  "./docservice/follow TestSteadyIncrementsAreContact",
	},
	{
		id: "S35", what: "an increment whose write failed cannot be added before the next manifest",
		edits: []edit{{"queue/publish/extension.go", "	} else {\n		err = e.write(data)\n	}\n", "	} else if err = e.write(data); err != nil {\n		return err\n	}\n"}},
		unit:  "./queue/publish TestStreamModel",
	},
	{
		id: "S36", what: "lists have the canaries of append",
		edits: []edit{{"docservice/collection/scan.go", "if !w.canaries && canary.Is(it.Key()) {", "if !w.canaries && canary.Is(it.Key()) && false {"}},
		unit:  "./docservice/collection TestScanHidesCanaries",
	},
	{
		id: "S37", what: "append puts a canary only with the next record",
		edits: []edit{{"ingest/appender.go", "		case <-a.canaries.due:\n			if err := a.putCanaries(); err != nil {\n				return err\n			}\n		case b, more", "		case b, more"}},
		unit:  "./ingest TestCanaries",
	},
	{
		id: "S38", what: "an entry without a cursor clears that of the entries before it",
		edits: []edit{{"queue/writer.go", "	if r.Cursor != nil {\n		w.mu.cursor", "	{\n		w.mu.cursor"}},
		unit:  "./ingest TestCanaries",
	},
	{
		id: "S39", what: "responses of a client that grow wait for each other", fleet: true,
		edits: []edit{{"boxcarrpc/budget/reservation.go", "	case grows == nil:\n		return false\n", "	case grows == nil || b.share > 0:\n		return false\n"}},
		unit:  "./boxcarrpc/budget TestGrowingResponsesEnd",
	},
	{
		id: "S40", what: "a revoked token is valid on a connection that is open", fleet: true,
		edits: []edit{{"boxcarrpc/server_auth.go", "	if c.server.options.Authenticate != nil {\n		credential.Check", "	if c.server.options.Authenticate != nil && c.token == \"\" {\n		credential.Check"}},
		unit:  "./boxcarrpc TestRevokedTokenEndsConnections",
	},
	{
		id: "S41", what: "lanes move whenever the connections to a server are uneven: slots are exchanged without end",
		edits: []edit{
			{"boxcarrpc/pool_spread.go", "difference > maxDifference || peer.spreading && difference > 1", "difference > 1"},
			{"boxcarrpc/pool_conns.go", "peer.emptiest(m.slots.replaced(peer.index))", "peer.emptiest(nil)"},
		},
		unit: "./boxcarrpc TestSpreadLanesStay",
	},
}
