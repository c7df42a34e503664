package explain

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/internal/testseed"
)

var (
	now     = time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)
	earlier = now.Add(-time.Hour)
	later   = now.Add(time.Hour)
)

func at(segment, block, index uint32) Address { return Address{segment, block, index} }

// server returns a ready server at position 5/0/0 whose answer is "not found".
func server(address string, change func(*Facts)) Server {
	f := &Facts{Version: "v1", HTTP: "http://127.0.0.1:7071", Shard: "jobs", Answer: notFound, Ready: true, Queue: "q1", Position: at(5, 0, 0)}
	if change != nil {
		change(f)
	}
	return Server{Address: address, Facts: f}
}

func found(a Address) func(*Facts) {
	return func(f *Facts) { f.Answer, f.Entry = Found, &Entry{Address: a} }
}

func history(v *Version, documents int) func(*Facts) {
	return func(f *Facts) { f.History = &History{Newest: v, Documents: documents} }
}

// with applies several changes.
func with(changes ...func(*Facts)) func(*Facts) {
	return func(f *Facts) {
		for _, change := range changes {
			change(f)
		}
	}
}

func manifest(m Manifest) func(*Facts) { return func(f *Facts) { f.Manifest = &m } }

func column(epoch uint64) func(*Facts) {
	return func(f *Facts) { f.Answer, f.Shard, f.Problem, f.Column = moved, "", "not here", &Column{"a", 1, epoch} }
}

func next(s Server) Server {
	s.Next = true
	return s
}

// Every verdict, with its reason and its command.
func TestExplain(t *testing.T) {
	dead := Server{Address: "dead:1", Error: "connection refused"}
	placed := &Placement{Etcd: "e:2379", Epoch: 9, Shard: 3, Column: "a"}
	behind := func(f *Facts) { f.Position, f.LagBytes, f.Lag = at(2, 64, 0), 3<<20, 12 }
	notReady := func(f *Facts) {
		f.Answer, f.Ready, f.NotReady, f.Problem = unavailable, false, "the queue has not been read to its end; 3 MiB are left to read", "unavailable"
	}
	deleted := &Version{Address: at(3, 8, 1), Appended: earlier, Deleted: true}
	one := func(changes ...func(*Facts)) []Server { return []Server{server("s:1", with(changes...))} }
	for name, test := range map[string]struct {
		servers   []Server
		placement *Placement
		verdict   Verdict
		reason    string
		command   string
	}{
		"served by all":            {[]Server{server("s:1", found(at(3, 0, 1))), server("t:1", found(at(3, 0, 1)))}, nil, Served, "version 3/0/1 is served", ""},
		"served by all that live":  {[]Server{dead, server("t:1", found(at(3, 0, 1)))}, nil, Served, "version 3/0/1 is served; no answer from 1 of 2 servers", ""},
		"served, to expire":        {one(found(at(3, 0, 1)), func(f *Facts) { f.Entry.Expires = &later }), nil, Served, "is served, until 2026-11-27T13:00:00Z", ""},
		"served beyond a position": {one(found(at(6, 0, 1))), nil, Served, "version 6/0/1 is served", ""},
		"wrong bytes in memcached": {one(found(at(3, 0, 1)), func(f *Facts) { f.Cache = CacheWrong }), nil, StaleCache, "memcached has other bytes for it, which the server does not use", ""},
		"deleted": {one(history(deleted, 2)), nil, Deleted, "the id was deleted at 3/8/1 (2026-11-27T11:00:00Z)",
			"docstore-updater explain 4711 --queue DIR"},
		"erased": {one(history(deleted, 0)), nil, Erased, "and no document of it is left in the files", "docstore-updater explain 4711 --queue DIR"},
		"expired": {one(history(&Version{Address: at(3, 8, 1), Expires: &earlier}, 1)), nil, Expired, "version 3/8/1 expired at 2026-11-27T11:00:00Z",
			"docstore-updater explain 4711 --queue DIR"},
		"expired, still in the index": {one(func(f *Facts) { f.Entry = &Entry{Address: at(3, 8, 1), Expires: &earlier} }), nil, Expired, "version 3/8/1 expired", "docstore-updater explain 4711 --queue DIR"},
		"never there": {one(history(nil, 0)), nil, Absent, "no version of the id is in the collection up to position 5/0/0: it was never appended",
			"docstore-updater explain 4711 --queue DIR"},
		"search too slow": {one(func(f *Facts) { f.History = &History{Problem: "context deadline exceeded"} }), nil, Absent, "whether it had one is not known: context deadline exceeded",
			"docstore-updater explain 4711 --queue DIR"},
		"deleted meanwhile": {one(history(&Version{Address: at(3, 8, 1)}, 1)), nil, Deleted, "deleted after version 3/8/1, while the servers were asked", ""},
		"one is behind": {[]Server{server("s:1", found(at(4, 0, 1))), server("t:1", behind)}, nil, Disagree,
			"the servers disagree: 1 served, 1 behind; t:1: the server is behind: it has read its queue up to 2/64/0, 2 segments, 3 MiB of its files, 12.0 s behind; version 4/0/1 comes later",
			"boxcar top --once --http http://127.0.0.1:7071"},
		"one serves an older version": {[]Server{server("s:1", found(at(4, 0, 1))), server("t:1", with(found(at(1, 0, 1)), behind))}, nil, Disagree,
			"t:1: the older version 1/0/1 is served: the server is behind", "boxcar top --once --http http://127.0.0.1:7071"},
		"one has not read the delete": {[]Server{server("s:1", history(deleted, 1)), server("t:1", with(found(at(1, 0, 1)), behind))}, nil, Disagree,
			"1 deleted, 1 behind; s:1: the id was deleted", "docstore-updater explain 4711 --queue DIR"},
		"behind, nobody has it": {one(history(nil, 0), behind), nil, Behind, "no version of the id is in the collection up to position 2/64/0, but the server is behind: it has read its queue up to 2/64/0, 3 MiB of its files, 12.0 s behind",
			"boxcar top --once --http http://127.0.0.1:7071"},
		"behind its manifest": {one(history(nil, 0), manifest(Manifest{Announced: 7, Target: 7, Served: 6, Behind: 30, Error: "the store is away"})), nil, Behind,
			"30.0 s behind; it serves manifest 6 of 7; the store is away", "boxcar top --once --http http://127.0.0.1:7071"},
		"not ready": {one(notReady), nil, NotReady, "the server is not ready: the queue has not been read to its end; 3 MiB are left to read",
			"docserviced health --ready --wait 5m --http http://127.0.0.1:7071"},
		"pinned": {one(history(nil, 0), manifest(Manifest{Announced: 9, Target: 7, Served: 7, Pinned: true, PinnedBy: "anna", PinReason: "typo"})), nil, Pinned,
			"the server is pinned to manifest 7 by anna (typo); 9 is announced", "docstore-updater unpin --bucket URL"},
		"pinned, others are not": {[]Server{server("s:1", found(at(5, 0, 1))), server("t:1", manifest(Manifest{Announced: 9, Target: 7, Served: 7, Pinned: true}))}, nil, Disagree,
			"t:1: the server is pinned to manifest 7 by an unknown user; 9 is announced; version 5/0/1 comes later", "docstore-updater unpin --bucket URL"},
		"rollback": {one(history(nil, 0), manifest(Manifest{Announced: 9, Target: 7, Served: 7, Pinned: true, Frozen: true})), nil, RolledBack,
			"a rollback to manifest 7 is in progress", "docstore-updater revert --bucket URL --queue DIR --to 7"},
		"damaged": {one(func(f *Facts) { f.Answer, f.Problem = unavailable, "3.seg: wrong checksum" }), nil, Damaged,
			"the document cannot be read here: 3.seg: wrong checksum", "docserviced bundle --http http://127.0.0.1:7071"},
		"failed": {one(func(f *Facts) { f.Answer, f.Problem = "internal", "a bug" }), nil, Damaged, "the server failed: a bug", "docserviced bundle --http http://127.0.0.1:7071"},
		"other shard": {one(func(f *Facts) { f.Answer, f.Problem = moved, "The document belongs to shard 3 of column b." }), nil, NotHere, "belongs to shard 3 of column b",
			"boxcar explain 4711 --etcd HOST:2379 --collection jobs"},
		"old placement":   {one(column(8)), placed, NotHere, "it follows epoch 8 of the placement, etcd has 9", "boxcar fleet --etcd e:2379 --collection jobs"},
		"wrong placement": {one(column(9)), placed, NotHere, "which the placement gives to its column: not here", "boxcar fleet --etcd e:2379 --collection jobs"},
		"moving":          {[]Server{server("s:1", found(at(3, 0, 1))), next(server("t:1", notReady))}, placed, Served, "version 3/0/1 is served", ""},
		"only moving":     {[]Server{next(server("t:1", notReady))}, placed, Moving, "the shard is moving here: the queue has not been read", "boxcar fleet --etcd e:2379 --collection jobs"},
		"not begun":       {[]Server{next(server("t:1", column(9)))}, placed, Moving, "has not begun to fetch it", "boxcar fleet --etcd e:2379 --collection jobs"},
		"unplaced":        {nil, &Placement{Etcd: "e:2379", Shard: 3}, Unplaced, "no column holds shard 3", "boxcar fleet --etcd e:2379 --collection jobs"},
		"dead column":     {nil, placed, NoServers, "no server of column a, which holds shard 3, is alive", "boxcar fleet --etcd e:2379 --collection jobs"},
		"no servers":      {nil, nil, NoServers, "no server is listed", ""},
		"none answers":    {[]Server{dead}, nil, NoAnswer, "the server does not answer: connection refused", "boxcar probe --servers dead:1 --collection jobs"},
		"not permitted":   {one(func(f *Facts) { f.Answer, f.Problem = Forbidden, "client fe is not permitted" }), nil, NotPermitted, "client fe is not permitted", ""},
		"no collection":   {one(func(f *Facts) { f.Answer, f.Problem = NoCollection, "only resumes" }), nil, NotServed, "only resumes", ""},
		"bad id":          {one(func(f *Facts) { f.Answer, f.Problem = "invalid_id", "too long" }), nil, BadID, "too long", ""},
		"another queue": {[]Server{server("s:1", found(at(3, 0, 1))), server("t:1", found(at(3, 0, 1))), server("u:1", func(f *Facts) { f.Queue = "q2" })}, nil, Disagree,
			"2 served, 1 other_queue; u:1: the server has queue q2, others have q1", "curl http://127.0.0.1:7071/collections"},
	} {
		t.Run(name, func(t *testing.T) {
			r := Explain(Question{Collection: "jobs", ID: "4711", Servers: test.servers, Placement: test.placement, Now: now})
			require.Equal(t, test.verdict, r.Verdict, r.Reason)
			require.Contains(t, r.Reason, test.reason)
			require.Equal(t, test.command, r.Command)
			require.Len(t, r.Servers, len(test.servers))
			require.Equal(t, test.verdict == Served || test.verdict == StaleCache, r.IsServed())
			for _, row := range r.Servers {
				require.Len(t, row.Cells(), len(Columns))
			}
			content, err := json.Marshal(r)
			require.NoError(t, err)
			require.NotContains(t, string(content), "null")
		})
	}
}

func TestSearches(t *testing.T) {
	far := server("s:1", func(f *Facts) { f.Position = at(9, 0, 0) })
	require.Equal(t, -1, Searches(nil))
	require.Equal(t, -1, Searches([]Server{server("s:1", found(at(1, 0, 0))), {Address: "dead"}}))
	require.Equal(t, 2, Searches([]Server{server("t:1", nil), {Address: "dead"}, far, server("u:1", nil)}))
}

func TestQuoted(t *testing.T) {
	for in, want := range map[string]string{"4711": "4711", "-x": "'-x'", "a b": "'a b'", "it's": `'it'\''s'`, "": "''", "a-b/c": "a-b/c"} {
		require.Equal(t, want, Quoted(in))
	}
}

// Whatever servers answer, there is a verdict with a reason.
func TestAnyFactsAreExplained(t *testing.T) {
	r := testseed.Rand(t)
	for range 2000 {
		pick := func(words ...string) string { return words[r.IntN(len(words))] }
		address := func() Address { return at(r.Uint32N(4), r.Uint32N(2), r.Uint32N(2)) }
		maybe := func() bool { return r.IntN(2) == 0 }
		q := Question{Collection: "jobs", ID: pick("a", "b c"), Now: now}
		if maybe() {
			q.Placement = &Placement{Column: pick("", "a"), Next: pick("", "b"), Epoch: r.Uint64N(3)}
		}
		for range r.IntN(4) {
			s := Server{Address: "s", Next: maybe(), Error: "silent"}
			if maybe() {
				s.Facts = &Facts{Answer: pick(Found, notFound, unavailable, moved, Forbidden, NoCollection, "?"), Problem: pick("o", "p"), Ready: maybe(), Queue: pick("", "q", "r"), Position: address()}
				if maybe() {
					s.Facts.Entry = &Entry{Address: address()}
				}
				if maybe() {
					s.Facts.History = &History{Newest: &Version{Address: address(), Deleted: maybe(), Expires: &earlier}}
				}
				if maybe() {
					s.Facts.Manifest = &Manifest{Announced: r.Uint64N(3), Target: r.Uint64N(3), Served: r.Uint64N(3), Pinned: maybe(), Frozen: maybe()}
				}
			}
			q.Servers = append(q.Servers, s)
		}
		report := Explain(q)
		require.NotEmpty(t, report.Verdict)
		require.NotEmpty(t, report.Reason)
		require.NotContains(t, report.Reason, "%!")
		for _, row := range report.Servers {
			row.Cells()
			if row.Facts != nil {
				require.NotEmpty(t, row.Facts.List())
			}
		}
	}
}
