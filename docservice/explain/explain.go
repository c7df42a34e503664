package explain

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"docstore/internal/units"
)

// Verdict is the reason why an id is served or not, in one word.
type Verdict string

// Verdicts of a server, and of all servers if they agree.
const (
	Served       Verdict = "served"
	StaleCache   Verdict = "stale_cache" // served; memcached has other bytes for it, which are not used
	Deleted      Verdict = "deleted"
	Erased       Verdict = "erased" // deleted, and no version is left in the files
	Expired      Verdict = "expired"
	Absent       Verdict = "absent"      // never in the collection up to the position
	Behind       Verdict = "behind"      // a version was not read yet, or may follow
	NotReady     Verdict = "not_ready"   // "not found" cannot be answered
	Pinned       Verdict = "pinned"      // to an older manifest
	RolledBack   Verdict = "rolled_back" // a rollback is in progress
	Damaged      Verdict = "damaged"     // the document cannot be read here
	NotHere      Verdict = "not_here"    // the shard of the id is on other servers
	Moving       Verdict = "moving"      // the shard is being fetched by its next column
	OtherQueue   Verdict = "other_queue" // another queue than the other servers
	NoAnswer     Verdict = "no_answer"
	NotPermitted Verdict = "not_permitted"
	NotServed    Verdict = "no_collection" // the server has no such collection
	BadID        Verdict = "invalid_id"
)

// Verdicts of all servers together.
const (
	Disagree  Verdict = "disagree"
	Unplaced  Verdict = "unplaced"   // no column holds the shard
	NoServers Verdict = "no_servers" // of the shard are known
)

// Question is an id and the facts about it.
type Question struct {
	Collection, ID string
	Servers        []Server   // those that hold the shard
	Placement      *Placement // nil: it is not known
	Now            time.Time
}

// Placement is the part of a placement that concerns the shard of the id.
type Placement struct {
	Etcd   string `json:"etcd"` // for commands
	Epoch  uint64 `json:"epoch"`
	Shard  int    `json:"shard"`
	Column string `json:"column"`         // empty: the shard is not placed
	Next   string `json:"next,omitempty"` // that fetches the shard
}

// Server is a server and its answer.
type Server struct {
	Address string `json:"address"`
	Next    bool   `json:"next,omitempty"` // it is of Placement.Next
	// Error is why Facts is nil.
	Error string `json:"error,omitempty"`
	Facts *Facts `json:"facts,omitempty"`
}

// Finding is a verdict, its reason, and a command that shows more or helps; empty: none.
type Finding struct {
	Verdict Verdict `json:"verdict"`
	Reason  string  `json:"reason"`
	Command string  `json:"command,omitempty"`
}

// Report is the verdict, and those of each server.
type Report struct {
	Collection string     `json:"collection"`
	ID         string     `json:"id"`
	Placement  *Placement `json:"placement,omitempty"`
	Finding
	Servers []Row `json:"servers"`
}

// Row is the verdict of a server.
type Row struct {
	Server
	Finding
}

// Explain returns the verdicts. It is a pure function.
func Explain(q Question) Report {
	j := newJudge(q)
	r := Report{Collection: q.Collection, ID: q.ID, Placement: q.Placement, Servers: []Row{}}
	for _, s := range q.Servers {
		r.Servers = append(r.Servers, Row{s, j.server(s)})
	}
	r.Finding = j.all(r.Servers)
	return r
}

// judge has what all servers together know.
type judge struct {
	Question
	queue  string   // that of most servers
	newest *Version // of the id in it; nil: none is known
	// documents is the number of versions with a document in the queue of the server that was
	// searched.
	documents int
}

func newJudge(q Question) *judge {
	j := &judge{Question: q}
	count := map[string]int{}
	for _, s := range q.Servers {
		if s.Facts == nil || s.Facts.Queue == "" {
			continue
		}
		if count[s.Facts.Queue]++; count[s.Facts.Queue] > count[j.queue] {
			j.queue = s.Facts.Queue
		}
	}
	for _, s := range q.Servers {
		if s.Facts == nil || s.Facts.Queue != j.queue {
			continue
		}
		if e := s.Facts.Entry; e != nil {
			j.add(Version{Address: e.Address, Expires: e.Expires}, 0)
		}
		if h := s.Facts.History; h != nil && h.Newest != nil {
			j.add(*h.Newest, h.Documents)
		}
	}
	return j
}

// add considers a version that a server knows.
func (j *judge) add(v Version, documents int) {
	if j.newest == nil || v.Address.Compare(j.newest.Address) >= 0 {
		j.newest, j.documents = &v, documents
	}
}

// server returns the verdict of one server.
func (j *judge) server(s Server) Finding {
	f := s.Facts
	if f == nil {
		return Finding{NoAnswer, "the server does not answer: " + s.Error, j.command("boxcar probe --servers " + s.Address + " --collection")}
	}
	switch f.Answer {
	case Forbidden:
		return Finding{NotPermitted, f.Problem, ""}
	case NoCollection:
		return Finding{NotServed, f.Problem, ""}
	case "invalid_id":
		return Finding{BadID, f.Problem, ""}
	case moved:
		return j.notHere(s)
	}
	if s.Next && f.Answer != Found {
		return Finding{Moving, "the shard is moving here: " + cmp.Or(f.NotReady, f.Problem), j.fleet()}
	}
	if f.Queue != j.queue && f.Queue != "" {
		return Finding{OtherQueue, fmt.Sprintf("the server has queue %s, others have %s: their sources differ", f.Queue, j.queue), "curl " + f.HTTP + "/collections"}
	}
	// The entry may be later than the position, which was read before.
	unread := j.isUnread(f) && (f.Entry == nil || f.Entry.Address.Compare(j.newest.Address) < 0)
	switch {
	case f.Answer == Found && unread:
		late := j.late(f)
		late.Reason = fmt.Sprintf("the older version %s is served: %s", f.Entry.at(), late.Reason)
		return late
	case f.Answer == Found:
		return j.served(f)
	case unread:
		return j.late(f)
	case f.Answer == unavailable && f.Ready:
		return Finding{Damaged, "the document cannot be read here: " + f.Problem + "; clients get it from another server", "docserviced bundle --http " + f.HTTP}
	case f.Answer == unavailable:
		return j.late(f)
	case f.Answer != notFound:
		return Finding{Damaged, "the server failed: " + f.Problem, "docserviced bundle --http " + f.HTTP}
	}
	return j.gone(f)
}

// at returns the address of an entry that may be missing.
func (e *Entry) at() string {
	if e == nil {
		return "?"
	}
	return e.Address.String()
}

func (j *judge) served(f *Facts) Finding {
	reason := "version " + f.Entry.at() + " is served"
	if f.Entry != nil && f.Entry.Expires != nil {
		reason += ", until " + moment(*f.Entry.Expires)
	}
	if f.Cache == CacheWrong {
		return Finding{StaleCache, reason + "; memcached has other bytes for it, which the server does not use: the checksum in the index differs", ""}
	}
	return Finding{Served, reason, ""}
}

// gone explains the answer "not found".
func (j *judge) gone(f *Facts) Finding {
	source := "docstore-updater explain " + Quoted(j.ID) + " --queue DIR"
	v := j.newest
	switch {
	case v == nil && f.mayFollow():
		late := j.late(f)
		late.Reason = fmt.Sprintf("no version of the id is in the collection up to position %s, but %s", f.Position, late.Reason)
		return late
	case v == nil && f.History != nil && f.History.Problem != "":
		return Finding{Absent, fmt.Sprintf("the id has no document up to position %s; whether it had one is not known: %s", f.Position, f.History.Problem), source}
	case v == nil:
		return Finding{Absent, fmt.Sprintf("no version of the id is in the collection up to position %s: it was never appended, or compaction has removed its delete", f.Position), source}
	case v.Deleted && j.documents == 0:
		return Finding{Erased, fmt.Sprintf("the id was deleted at %s%s, and no document of it is left in the files", v.Address, v.appended()), source}
	case v.Deleted:
		return Finding{Deleted, fmt.Sprintf("the id was deleted at %s%s", v.Address, v.appended()), source}
	case v.Expires != nil && !v.Expires.After(j.Now):
		return Finding{Expired, fmt.Sprintf("version %s expired at %s", v.Address, moment(*v.Expires)), source}
	}
	return Finding{Deleted, fmt.Sprintf("the id was deleted after version %s, while the servers were asked; ask again", v.Address), ""}
}

// mayFollow reports whether entries exist that the server has not read.
func (f *Facts) mayFollow() bool {
	m := f.Manifest
	return f.LagBytes > 0 || m != nil && (m.Frozen || m.Behind > 0 || m.Target < m.Announced || m.Served < m.Target)
}

// isUnread reports whether the newest version follows the position of a server.
func (j *judge) isUnread(f *Facts) bool {
	return j.newest != nil && j.newest.Address.Compare(f.Position) >= 0
}

// late explains why a server has not read a version, or may not have.
func (j *judge) late(f *Facts) Finding {
	version := ""
	if j.isUnread(f) {
		version = fmt.Sprintf("; version %s%s comes later", j.newest.Address, j.newest.appended())
	}
	m := f.Manifest
	switch {
	case m != nil && m.Frozen:
		return Finding{RolledBack, fmt.Sprintf("a rollback to manifest %d is in progress: nothing is announced until the queue has been reverted%s", m.Target, version),
			fmt.Sprintf("docstore-updater revert --bucket URL --queue DIR --to %d", m.Target)}
	case m != nil && m.Pinned && m.Target < m.Announced:
		return Finding{Pinned, fmt.Sprintf("the server is pinned to manifest %d by %s%s; %d is announced%s", m.Target, cmp.Or(m.PinnedBy, "an unknown user"), m.because(), m.Announced, version),
			"docstore-updater unpin --bucket URL"}
	case !f.Ready:
		return Finding{NotReady, "the server is not ready: " + f.NotReady + version, "docserviced health --ready --wait 5m --http " + f.HTTP}
	}
	return Finding{Behind, "the server is behind: it has read its queue up to " + f.Position.String() + j.behind(f) + version, "boxcar top --once --http " + f.HTTP}
}

func (m *Manifest) because() string {
	if m.PinReason == "" {
		return ""
	}
	return " (" + m.PinReason + ")"
}

// behind describes how far a server is behind.
func (j *judge) behind(f *Facts) string {
	var parts []string
	if j.newest != nil && j.newest.Address.Segment > f.Position.Segment {
		parts = append(parts, units.FormatCountOf(int64(j.newest.Address.Segment-f.Position.Segment), "segment", "segments"))
	}
	if f.LagBytes > 0 {
		parts = append(parts, units.FormatBytes(f.LagBytes)+" of its files")
	}
	seconds := f.Lag
	m := f.Manifest
	if m != nil {
		seconds = max(seconds, m.Behind)
	}
	if seconds > 0 {
		parts = append(parts, units.FormatSeconds(seconds))
	}
	text := ""
	if len(parts) > 0 {
		text = ", " + strings.Join(parts, ", ") + " behind"
	}
	if m != nil && m.Served < m.Target {
		text += fmt.Sprintf("; it serves manifest %d of %d", m.Served, m.Target)
	}
	if m != nil && m.Error != "" {
		text += "; " + m.Error
	}
	return text
}

// notHere explains a server that does not have the shard.
func (j *judge) notHere(s Server) Finding {
	f, p := s.Facts, j.Placement
	switch {
	case s.Next:
		return Finding{Moving, "the shard is moving here, and the server has not begun to fetch it", j.fleet()}
	case p == nil:
		return Finding{NotHere, f.Problem, "boxcar explain " + Quoted(j.ID) + " --etcd HOST:2379 --collection " + j.Collection}
	case f.Column != nil && f.Column.Epoch < p.Epoch:
		return Finding{NotHere, fmt.Sprintf("the server does not have shard %d: it follows epoch %d of the placement, etcd has %d", p.Shard, f.Column.Epoch, p.Epoch), j.fleet()}
	}
	return Finding{NotHere, fmt.Sprintf("the server does not have shard %d, which the placement gives to its column: %s", p.Shard, f.Problem), j.fleet()}
}

// fleet is the command that shows the placement.
func (j *judge) fleet() string {
	if j.Placement == nil {
		return ""
	}
	return j.command("boxcar fleet --etcd " + j.Placement.Etcd + " --collection")
}

// command appends the name of the collection.
func (j *judge) command(text string) string { return text + " " + Quoted(j.Collection) }

// all returns the verdict of all servers together.
func (j *judge) all(rows []Row) Finding {
	p := j.Placement
	switch {
	case p != nil && p.Column == "":
		return Finding{Unplaced, fmt.Sprintf("no column holds shard %d", p.Shard), j.fleet()}
	case len(rows) == 0 && p != nil:
		return Finding{NoServers, fmt.Sprintf("no server of column %s, which holds shard %d, is alive", p.Column, p.Shard), j.fleet()}
	case len(rows) == 0:
		return Finding{NoServers, "no server is listed", ""}
	}
	var silent int
	var first, other *Row // of those that count
	count := map[Verdict]int{}
	for i := range rows {
		r := &rows[i]
		switch r.Verdict {
		case NoAnswer:
			silent++
			continue
		case Moving:
			continue
		}
		count[plain(r.Verdict)]++
		if first == nil {
			first = r
		}
		if other == nil && plain(r.Verdict) != Served {
			other = r
		}
	}
	tail := ""
	if silent > 0 {
		tail = fmt.Sprintf("; no answer from %d of %s", silent, units.FormatCountOf(int64(len(rows)), "server", "servers"))
	}
	switch {
	case first == nil && silent > 0:
		return Finding{NoAnswer, "no server that holds the id answers: " + rows[0].Reason, rows[0].Command}
	case first == nil:
		return rows[0].Finding // moving
	case len(count) == 1:
		return Finding{first.Verdict, first.Reason + tail, first.Command}
	}
	var parts []string
	for _, r := range rows {
		if v := plain(r.Verdict); count[v] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", count[v], v))
			delete(count, v)
		}
	}
	return Finding{Disagree, fmt.Sprintf("the servers disagree: %s; %s %s%s", strings.Join(parts, ", "), other.Address+":", other.Reason, tail), other.Command}
}

// plain returns the verdict for the comparison of servers.
func plain(v Verdict) Verdict {
	if v == StaleCache {
		return Served
	}
	return v
}

func (v *Version) appended() string {
	if v.Appended.IsZero() {
		return ""
	}
	return " (" + moment(v.Appended) + ")"
}

func moment(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// plainWord matches arguments that need no quotes in a shell.
var plainWord = regexp.MustCompile(`^[A-Za-z0-9_./:@][-A-Za-z0-9_./:@]*$`)

// Quoted returns a word of a command line.
func Quoted(word string) string {
	if plainWord.MatchString(word) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// Searches returns the server that is to search its queue for versions: of those that do not find
// the id the one that has read most; -1: none.
func Searches(servers []Server) int {
	best := -1
	for i, s := range servers {
		if s.Facts == nil || s.Facts.Answer != notFound && s.Facts.Answer != unavailable {
			continue
		}
		if best < 0 || s.Facts.Position.Compare(servers[best].Facts.Position) > 0 {
			best = i
		}
	}
	return best
}

// IsServed reports whether all servers that count serve the newest version.
func (r *Report) IsServed() bool { return plain(r.Verdict) == Served }

// Columns are the heads of Cells.
var Columns = []string{"server", "version", "column", "state", "position", "entry", "manifest", "pin", "cache", "faults", "verdict"}

// Cells returns the cells of a server in a table.
func (r *Row) Cells() []string {
	f := r.Facts
	if f == nil {
		return append(append([]string{r.Address}, slices.Repeat([]string{"-"}, len(Columns)-2)...), string(r.Verdict))
	}
	column, state, entry, manifest, pin := "-", "ready", "-", "-", "-"
	if c := f.Column; c != nil {
		column = fmt.Sprintf("%s/%d, epoch %d", c.Name, c.Row, c.Epoch)
	}
	if !f.Ready {
		state = "not ready"
	}
	if f.Entry != nil {
		entry = f.Entry.Address.String()
	}
	if m := f.Manifest; m != nil {
		manifest = fmt.Sprintf("%d of %d", m.Served, m.Target)
		if m.Pinned {
			pin = cmp.Or(m.PinnedBy, "yes")
		}
	}
	version, _, _ := strings.Cut(f.Version, " (commit") // of the build
	return []string{r.Address, version, column, state, f.Position.String(), entry, manifest, pin, cmp.Or(f.Cache, "-"), fmt.Sprint(len(f.Faults)), string(r.Verdict)}
}
