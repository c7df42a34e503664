package simulation

// issueU are the defects of index, cache, erasure and distribution.
var issueU = []defect{
	{
		id: "U0a", what: "the target of a start is the manifest, without its increments",
		edits: []edit{{"docservice/follow/follow.go", "	if aim.extends {\n", "	if aim.extends && f == nil {\n"}},
		unit:  "./docservice/follow TestStartWhileIncrementsAreBehind",
	},
	{
		id: "U0a-kept", what: "the target of a start is not kept for the next start",
		edits: []edit{{"docservice/follow/follow.go", "	if err := f.change(func(c *current) { c.Goal = next }); err != nil {\n", "	if err := f.change(func(c *current) { c.Goal = goal{} }); err != nil {\n"}},
		unit:  "./docservice/follow TestStartWhileIncrementsAreBehind",
	},
	{
		id: "U0a-unsent", what: "a collection that is behind its target finds ids missing",
		edits: []edit{{"docservice/collection/notfound.go", "	case k.behind:\n		return gapBehind\n", ""}},
		unit:  "./docservice/follow TestStartWhileIncrementsAreBehind",
	},
	{
		id: "U0a-publisher", what: "a manifest lacks entries that increments of its parent announced",
		edits: []edit{{"queue/publish/publisher.go", "	if !record.Increments || base != record.Head || base.Number == 0 {\n", "	if record.Increments || base != record.Head || base.Number == 0 {\n"}},
		unit:  "./queue/publish TestManifestIncludesAnnouncedEntries",
	},
	{
		id: "U0b", what: "reading continues behind the cursor in a file that was restored from an older copy",
		edits: []edit{{"ingest/files/cursor.go", "	if err := checkSample(file, end-int64(c.Tail.Bytes), c.Tail); err != nil {\n		return 0, err\n	}\n", "	_ = end\n"}},
		unit:  "./cmd/internal/updater TestResume",
	},
	{
		id: "U0b-follow", what: "reading continues in a file that was truncated and has grown past the old size",
		edits: []edit{{"ingest/files/follow.go", "return bytes.Equal(now[:n], f.tail)", "return n >= 0 || bytes.Equal(now[:n], f.tail)"}},
		unit:  "./cmd/internal/updater TestTruncatedAndRegrown",
	},
	{
		id: "U0b-nats", what: "a stream that was restored from an older copy and written past the cursor is read on",
		edits:     []edit{{"ingest/nats/compare.go", "	case p.content.time == 0, found != nil", "	case p != nil, found != nil"}},
		unit:      "./ingest/nats TestRestoredStream|TestOlderCopyOfAStream",
		simulated: noServer,
	},
	{
		id: "U0b-postgres", what: "a restored server whose log has passed the cursor is read on",
		edits:     []edit{{"ingest/postgres/history.go", "	if h.found || end <= h.lsn {\n", "	if h != nil || end <= h.lsn {\n"}},
		unit:      "./ingest/postgres TestRestoredServer|TestHistory",
		simulated: noServer,
	},
	{
		id: "U0b-kafka", what: "a topic that was restored from an older copy is read on",
		edits:     []edit{{"ingest/kafka/content.go", "if e.offset-1 == m.Offset && e.content != contentOf(m) {", "if e.offset-1 == m.Offset && e.content != contentOf(m) && s == nil {"}},
		unit:      "./ingest/kafka TestRestoredLog",
		simulated: noServer,
	},
	{
		id: "U0c", what: "a partition that was truncated, attached or detached is not noticed",
		edits:     []edit{{"ingest/postgres/partitions.go", "	if earlier == 0 || earlier == now {\n", "	if earlier != 1<<63 || earlier == now {\n"}},
		unit:      "./ingest/postgres TestSource/partition",
		simulated: noServer,
	},
	{
		id: "U1", what: "a document whose delete was dropped while the server was away is served from memcached",
		edits: []edit{{"docservice/collection/reader.go", "	cached := r.options.Cache != nil && !unsettled.holds(entry.address)\n", "	_ = unsettled\n	cached := r.options.Cache != nil\n"}},
		unit:  "./docservice/collection TestCrashBeforeStaleEntriesAreRemoved",
	},
	{
		id: "U1-unmarked", what: "the segments of a rewrite whose deletes the index has not read are not marked",
		edits: []edit{{"docservice/collection/settle.go", "	if len(found) == 0 {\n		return nil\n	}\n	s.indexing.Lock()", "	if len(found) >= 0 {\n		return nil\n	}\n	s.indexing.Lock()"}},
		unit:  "./docservice/collection TestDeleteDroppedWhileTheIndexWasAway",
	},
	{
		id: "U1-again", what: "segments that were marked again during the removal of stale entries become settled",
		edits: []edit{{"docservice/collection/settle.go", "	if s.indexing.marks == marks {\n", "	if s.indexing.marks >= marks {\n"}},
		unit:  "./docservice/collection TestSegmentsMarkedAgainStayUnsettled",
	},
	{
		id: "U2", what: "a list has documents whose delete was dropped while the server was away",
		edits: []edit{{"docservice/collection/scan.go", "; w.unsettled.holds(entry.address) {", "; w.unsettled.holds(entry.address) && ctx == nil {"}},
		unit:  "./docservice/collection TestStaleEntriesOfAMissingFile|TestCrashBeforeStaleEntriesAreRemoved",
	},
	{
		id: "U2-kept", what: "entries of dropped documents stay in the index when their segments become settled",
		edits: []edit{{"docservice/collection/settle.go", "		case errors.As(err, &gone) && isSettled(gone, position):\n			stale = append(stale, e)\n", "		case errors.As(err, &gone) && isSettled(gone, position):\n"}},
		unit:  "./docservice/collection TestDeleteDroppedWhileTheIndexWasAway",
	},
	{
		id: "U3", what: "a document of memcached counts if its address is that of the index",
		edits: []edit{{"docservice/collection/cache.go", "form.Address != entry.address || !entry.place.Matches(&form) {\n		return dst", "form.Address != entry.address {\n		return dst"}},
		unit:  "./docservice/collection TestCacheWithAnotherHistory",
	},
	{
		id: "U3-truncated", what: "memcached is asked while the index holds truncated entries",
		edits: []edit{{"docservice/collection/cache.go", "|| !entry.cacheable() || !r.health.continues.Load() {", "|| !entry.cacheable() {"}},
		unit:  "./docservice/collection TestCacheAfterTruncation",
	},
	{
		id: "U4", what: "the order of names decides which index is served",
		edits: []edit{{"docservice/collection/layout.go", "	if i := slices.Index(numbers, named); i >= 0 {\n", "	if i := slices.Index(numbers, named); i > len(numbers) {\n"}},
		unit:  "./docservice/collection TestServedIndexIsRecorded",
	},
	{
		// The limit was 9,999. With 2, a simulation reaches it.
		id: "U5", what: "erasure skips files of the last generation, without an error",
		edits: []edit{{"queue/maintain/compact_plan.go", "	for _, p := range parts {\n		if !p.due(maxDead) {\n", "	for _, p := range parts {\n		if p.Generation >= 2 {\n			continue\n		}\n		if !p.due(maxDead) {\n"}},
		unit:  "./queue/maintain TestEraseAtAnyGeneration",
	},
	{
		id: "U6", what: "merges take the memory of iterators",
		edits:     []edit{{"lsm/budget.go", "	if pinned > b.pinnable() {\n", "	if pinned+b.merging.Load() > b.pinnable() {\n"}},
		unit:      "./lsm TestIteratorsDuringLargeMerge",
		simulated: "needs merges of tens of megabytes: 16 MiB of memory leave iterators 4 MiB",
	},
	{
		// segment.MaxSegmentBytes is 4 GiB; it, segment.MaxBlockFileBytes, MaxRelocatedBytes and
		// RewriteReserveBytes would have to be a thousandth of that for a simulation.
		id: "U7", what: "a segment can be so large that its rewrite exceeds the maximum",
		edits:     []edit{{"queue/writer.go", " &&\n		s.rewritten+segment.MaxRelocatedBytes+segment.RewriteReserveBytes <= MaxSegmentBytes", ""}},
		unit:      "./queue TestSegmentEndsBeforeItsRewriteIsFull",
		simulated: "needs a segment of nearly 4 GiB, and the limit is part of the format",
	},
	{
		id: "U8a", what: "a checkpoint of a running server is labelled with the manifest before that of its index",
		edits:     []edit{{"docservice/follow/dirs.go", "			return to.save(after)\n", "			return to.save(before)\n"}},
		unit:      "./docservice/follow TestCheckpointDuringAdvance",
		simulated: "the command reads the files of the operating system",
	},
	{
		id: "U8b", what: "the memory of a document is reserved by the size before an erasure encoded it again",
		edits:     []edit{{"docservice/collection/reader.go", "if accept == 0 || size <= expected || budget.TryReserve(ctx, size) {", "if accept == 0 || size >= 0 || budget.TryReserve(ctx, size) {"}},
		unit:      "./docservice/collection TestStaleSizesAreNotTrusted",
		simulated: "no answer is wrong: only memory is counted too low",
	},
	{
		id: "U8c", what: "the index that was replaced is served at the next start if its removal failed",
		edits: []edit{{"docservice/collection/replacement.go", "	if err := writeServing(c.options.FS, c.dir, next.number); err != nil {\n		return err\n	}\n", ""}},
		unit:  "./docservice/collection TestServedIndexIsRecorded|TestReindexAfterCrash|TestCrashDuringReplacement",
	},
	{
		id: "U8d", what: "the buffers of tables that are being written do not count to the budget",
		edits:     []edit{{"lsm/internal/table/writer.go", "	w.charge.add(room - cap(w.part))\n", ""}},
		unit:      "./lsm TestIteratorsDuringLargeMerge",
		simulated: "no answer is wrong: only memory is counted too low",
	},
	{
		id: "U8e", what: "a place in one rewrite is read in another one of the same number without a comparison of checksums",
		edits: []edit{
			{"queue/internal/segment/fetch.go", "	if err == nil && requested && got != l.CRC {\n", "	if err == nil && requested && got != l.CRC && l.id != 0 {\n"},
			{"queue/internal/segment/fetch.go", "	if got != l.CRC {\n", "	if got != l.CRC && l.id != 0 {\n"},
		},
		unit: "./queue/maintain TestPlacesOfRewritesWithTheSameNumber",
	},
	{
		id: "U9", what: "merges drop entries that have not expired",
		edits: []edit{{"docservice/collection/sweep.go", "return err == nil && len(id) > 0 && entry.expired(expiredAt)", "return err == nil && len(id) > 0 && entry.expiry != 0 && !expiredAt.IsZero()"}},
		unit:  "./docservice/collection TestMergesLeaveOutExpiredEntries",
	},
	{
		id: "U9-rate", what: "the rate of merges is not limited",
		edits:     []edit{{"lsm/compact.go", "	for limiter != nil && bytes > 0 && ", "	for limiter != nil && bytes > 1<<62 && "}},
		unit:      "./lsm TestMergeRate",
		simulated: "no answer is wrong: merges take more of the disk's time",
	},
}
