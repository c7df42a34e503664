package simulate

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"docstore/docservice"
)

// entry is a record that the application wrote to its log.
type entry struct {
	id      string
	shard   int
	version int       // of the document; each has another one
	deleted bool      // the record deletes the id
	expires time.Time // zero: never
	line    string    // see record; empty: it is not known
	large   bool      // see Config.Large
	// withdrawn is the number of the removal of entries that has removed it from the queue, which has it
	// again at a later position; 0: none has.
	withdrawn int
}

// account is the exact record of what the application wrote, and judges what servers answer.
//
// The state of a shard at position p is the newest entry of each id up to p, and an answer is
// right if it is that of some state between two positions: the floor of the server when the
// request began, and the newest entry when the answer arrived. The floor is the newest position
// that the server is known to have reached, because it has answered from there, or, for "not
// found", because it must have read that far before it was ready. So an older state after a newer
// one is wrong, as is a document that is missing.
type account struct {
	start  time.Time
	layout func(id string) int // the shard of an id
	shards int
	// tolerance is the time before and after its expiry in which a document may be served or not.
	tolerance time.Duration

	mu struct {
		sync.Mutex
		entries   []entry
		of        map[string][]int // positions of the entries of an id
		ids       []string         // of the entries, sorted
		announced []int            // by shard: the newest position that any server had
		news      []news           // its changes, in a collection of one shard
		views     map[string]*view // by server
		answers   map[string]int   // by kind
		wrong     []string
		// withdrawals is the number of removals of entries.
		withdrawals int
	}
}

// view has the known positions of a server, by shard.
type view struct {
	floors []int // the newest ones that answers came from
	goals  []int // those which it must have read before it answers "not found"
	starts int   // of processes, and changes of backs
	backs  int   // reasons why it may go back to an earlier state
	known  int   // starts up to which goals are not known
}

// news is that a server had a position at a time.
type news struct {
	at       time.Time
	position int
}

// clockTolerance is the time before and after its expiry in which a document may be served or not, if
// the clocks of the servers are right.
const clockTolerance = 2 * time.Second

// maxWrong is the number of wrong answers that are described.
const maxWrong = 20

func newAccount(c Config, shards int, shardOf func(id string) int) *account {
	a := &account{start: time.Now(), layout: shardOf, shards: shards, tolerance: clockTolerance + c.Clocks}
	a.mu.of, a.mu.announced = map[string][]int{}, make([]int, shards)
	a.mu.views, a.mu.answers = map[string]*view{}, map[string]int{}
	a.mu.entries = []entry{{}} // positions begin at 1
	return a
}

// wrote records that the log has one more entry.
func (a *account) wrote(e entry) {
	a.mu.Lock()
	defer a.mu.Unlock()
	e.shard, e.line = a.layout(e.id), e.record()
	if at, found := slices.BinarySearch(a.mu.ids, e.id); !found {
		a.mu.ids = slices.Insert(a.mu.ids, at, e.id)
	}
	a.mu.of[e.id] = append(a.mu.of[e.id], len(a.mu.entries))
	a.mu.entries = append(a.mu.entries, e)
}

// wrongf records a violation of a rule.
func (a *account) wrongf(rule, format string, args ...any) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.addWrong(rule, format, args...)
}

func (a *account) addWrong(rule, format string, args ...any) {
	if len(a.mu.wrong) < maxWrong {
		at := time.Since(a.start).Round(time.Millisecond)
		a.mu.wrong = append(a.mu.wrong, fmt.Sprintf("%s: at %v, %s", rule, at, fmt.Sprintf(format, args...)))
	}
}

// violations returns the violated rules, in the order in which they were found.
func (a *account) violations() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.mu.wrong)
}

func (a *account) viewOf(server string) *view {
	v := a.mu.views[server]
	if v == nil {
		v = &view{floors: make([]int, a.shards), goals: make([]int, a.shards)}
		a.mu.views[server] = v
	}
	return v
}

// started records that a process of a server starts. If power was lost it may have lost what was
// not synced, and reads it again. The result is the position of all shards that it must reach if
// it can read the store.
func (a *account) started(server string, powerLost bool) (goals []int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	v := a.viewOf(server)
	v.starts++
	if powerLost {
		clear(v.floors)
	}
	if v.backs > 0 {
		return make([]int, a.shards)
	}
	return slices.Clone(a.mu.announced)
}

// goBack records that a server may go back to an earlier state from now on.
func (a *account) goBack(server string) { a.changeBacks(server, 1) }

// goForward records that a server has returned to the announced state after one goBack.
func (a *account) goForward(server string) { a.changeBacks(server, -1) }

func (a *account) changeBacks(server string, by int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	v := a.viewOf(server)
	v.backs += by
	v.starts++ // nothing is known of requests in flight
	v.known = v.starts
	clear(v.floors)
	clear(v.goals)
}

// count returns the number of entries.
func (a *account) count() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.mu.entries) - 1
}

// newestIDs returns the ids of the newest entries.
func (a *account) newestIDs(n int) (ids []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, e := range a.mu.entries[max(1, len(a.mu.entries)-n):] {
		ids = append(ids, e.id)
	}
	return ids
}

// undone records an entry with which a revert restored a version, or deleted an id.
func (a *account) undone(e entry) {
	a.mu.Lock()
	for _, p := range a.mu.of[e.id] {
		if before := a.mu.entries[p]; !e.deleted && before.version == e.version {
			e.expires, e.line = before.expires, before.line
		}
	}
	a.mu.Unlock()
	a.wrote(e)
}

// pinned judges an answer of a server that serves exactly the state at a position.
func (a *account) pinned(server string, position int, id string, document []byte, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	state := entry{deleted: true}
	for _, p := range a.mu.of[id] {
		if p <= position {
			state = a.mu.entries[p]
		}
	}
	switch {
	case !state.expires.IsZero(), err != nil && !errors.Is(err, docservice.ErrNotFound):
	case (err != nil) != state.deleted, err == nil && string(document) != state.record():
		a.addWrong("pinned", "%s serves a pinned manifest, which ends at position %d, and answers %.60q, %v for %s: version %d (deleted: %v) is right",
			server, position, document, err, id, state.version, state.deleted)
	}
}

// lostCopy records that power was lost on a server whose goals are those of its copy of the queue:
// renames of a copier are not synced, so that the copy may be an older one.
func (a *account) lostCopy(server string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	clear(a.viewOf(server).goals)
}

// lostIndex records that a server builds its index again, and has answered from later positions before.
func (a *account) lostIndex(server string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	clear(a.viewOf(server).floors)
}

// reached records that a server is ready, and could read the store all the time since it started.
func (a *account) reached(server string, goals []int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	v := a.viewOf(server)
	if v.backs > 0 || v.starts <= v.known {
		return
	}
	for shard, goal := range goals {
		v.goals[shard] = max(v.goals[shard], goal)
	}
}

// caughtUp records that servers have everything that was written.
func (a *account) caughtUp(servers ...string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, server := range servers {
		for shard := range a.shards {
			a.viewOf(server).floors[shard] = len(a.mu.entries) - 1
		}
	}
}

// question is a request, with the positions that were known when it began.
type question struct {
	servers []string // one of them answers
	began   time.Time
	floors  []int
	goals   []int
	starts  int
	ready   bool // the only server was ready
	whole   bool // each shard was served by a server
	// partial: the server reads segments that were compacted, and lacks the later ones that have
	// what compact dropped: its state is that of no position.
	partial bool
}

// ask records that a request begins, which one of the servers answers.
func (a *account) ask(servers ...string) question {
	a.mu.Lock()
	defer a.mu.Unlock()
	first := a.viewOf(servers[0])
	q := question{servers: servers, began: time.Now(), floors: slices.Clone(first.floors), goals: slices.Clone(first.goals), starts: a.starts(servers)}
	for _, server := range servers[1:] {
		v := a.viewOf(server)
		for shard := range a.shards {
			q.floors[shard] = min(q.floors[shard], v.floors[shard])
			q.goals[shard] = min(q.goals[shard], v.goals[shard])
		}
	}
	return q
}

// floor returns the position that the server must have answered from. Of a process that has started
// since the request began, nothing is known.
func (a *account) floor(q question, shard int) int {
	if a.starts(q.servers) != q.starts {
		return 0
	}
	return q.floors[shard]
}

// floorOfFound returns the position from which a document may be. A server that was ready had
// reached its goals.
func (a *account) floorOfFound(q question, shard int) int {
	floor := a.floor(q, shard)
	if q.ready && !q.partial && a.starts(q.servers) == q.starts {
		floor = max(floor, min(q.goals[shard], a.viewOf(q.servers[0]).goals[shard])) // see lostCopy
	}
	return floor
}

// starts returns how many processes of some servers have started.
func (a *account) starts(servers []string) (n int) {
	for _, server := range servers {
		n += a.viewOf(server).starts
	}
	return n
}

// found judges a document that was returned for an id.
func (a *account) found(q question, id string, document []byte) {
	version, err := parseDocument(id, document)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.mu.answers["found"]++
	if err != nil {
		a.addWrong("bytes", "%s returned wrong bytes for %s: %v", q.name(), id, err)
		return
	}
	positions := a.mu.of[id]
	i := -1
	for j, p := range positions { // a record of a restored log has several
		if e := a.mu.entries[p]; !e.deleted && e.version == version {
			if i = j; i+1 == len(positions) || positions[i+1] > a.floorOfFound(q, e.shard) {
				break
			}
		}
	}
	if i < 0 {
		a.addWrong("invented", "%s returned version %d of %s, which was never written", q.name(), version, id)
		return
	}
	at := positions[i]
	e := a.mu.entries[at]
	if string(document) != e.record() {
		a.addWrong("bytes", "%s returned %d bytes of version %d of %s, which differ from those written", q.name(), len(document), version, id)
	}
	if floor := a.floorOfFound(q, e.shard); i+1 < len(positions) && positions[i+1] <= floor {
		next := a.mu.entries[positions[i+1]]
		a.addWrong("old", "%s returned version %d of %s at position %d, after it had reached position %d; position %d has version %d (deleted: %v)",
			q.name(), version, id, at, floor, positions[i+1], next.version, next.deleted)
	}
	if !e.expires.IsZero() && q.began.After(e.expires.Add(a.tolerance)) {
		a.addWrong("expired", "%s returned version %d of %s, which expired at %v", q.name(), version, id, e.expires)
	}
	if len(q.servers) == 1 && a.starts(q.servers) == q.starts && !q.partial {
		if v := a.viewOf(q.servers[0]); v.backs == 0 {
			v.floors[e.shard] = max(v.floors[e.shard], at)
		}
	}
	if at > a.mu.announced[e.shard] {
		a.mu.announced[e.shard] = at
		if a.shards == 1 {
			a.mu.news = append(a.mu.news, news{time.Now(), at})
		}
	}
}

// announcedBefore returns the newest position that any server had before a time.
func (a *account) announcedBefore(t time.Time) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, n := range slices.Backward(a.mu.news) {
		if n.at.Before(t) {
			return n.position
		}
	}
	return 0
}

// missing judges that an id was not found.
func (a *account) missing(q question, id string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.mu.answers["not found"]++
	if why := a.mayBeMissing(q, id); why != "" {
		a.addWrong("not found", "%s did not find %s: %s", q.name(), id, why)
	}
}

// complete returns the position from which the server must have answered that it has no document, or
// must have listed ids: it has read what it must read before.
func (a *account) complete(q question, shard int) int {
	goal := q.goals[shard]
	for _, server := range q.servers {
		goal = min(goal, a.viewOf(server).goals[shard]) // see lostCopy
	}
	return max(a.floor(q, shard), goal)
}

// mayBeMissing returns why an id must be found, or "" if some state has no document of it.
func (a *account) mayBeMissing(q question, id string) string {
	floor := a.complete(q, a.layout(id))
	none, last := true, 0 // the state at floor
	for _, p := range a.mu.of[id] {
		e := a.mu.entries[p]
		if p > floor && none {
			break
		}
		none, last = e.deleted || !e.expires.IsZero() && time.Now().After(e.expires.Add(-a.tolerance)), p
	}
	if none {
		return ""
	}
	return fmt.Sprintf("position %d has version %d, and the server had reached position %d", last, a.mu.entries[last].version, floor)
}

// listed judges a part of a list: the ids from after, exclusive, to through, inclusive; an
// empty through is the end.
func (a *account) listed(q question, after, through string, ids []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.mu.answers["listed"] += len(ids)
	present := map[string]bool{}
	for _, id := range ids {
		present[id] = true
		if why := a.mayBePresent(q, id); why != "" {
			a.addWrong("list", "%s listed %s: %s", q.name(), id, why)
		}
	}
	first, _ := slices.BinarySearch(a.mu.ids, after)
	for _, id := range a.mu.ids[first:] {
		if through != "" && id > through {
			break
		}
		if id == after || present[id] {
			continue
		}
		if why := a.mayBeMissing(q, id); why != "" {
			a.addWrong("list", "%s did not list %s: %s", q.name(), id, why)
		}
	}
}

// mayBePresent returns why an id must not be listed, or "" if some state has a document of it.
func (a *account) mayBePresent(q question, id string) string {
	floor, positions := a.complete(q, a.layout(id)), a.mu.of[id]
	for i, p := range positions {
		e := a.mu.entries[p]
		current := i+1 == len(positions) || positions[i+1] > floor
		if current && !e.deleted && (e.expires.IsZero() || q.began.Before(e.expires.Add(a.tolerance))) {
			return ""
		}
	}
	return fmt.Sprintf("no state from position %d on has it", floor)
}

// other counts an answer that says nothing about documents.
func (a *account) other(kind string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.mu.answers[kind]++
}

func (q question) name() string {
	if len(q.servers) > 1 {
		return "a server"
	}
	return q.servers[0]
}
