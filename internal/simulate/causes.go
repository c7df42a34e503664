package simulate

import (
	"context"
	"slices"
	"strings"
	"time"

	"docstore/internal/simulate/chance"
	"docstore/queue/publish"
)

// Names of alerts.
const (
	down            = "DocstoreDown"
	notReady        = "DocstoreNotReady"
	damage          = "DocstoreDamage"
	diskFull        = "DocstoreDiskFull"
	unequal         = "DocstoreUnequal"
	manifestError   = "DocstoreManifestError"
	manifestSilent  = "DocstoreManifestSilent"
	etcdSilent      = "DocstoreEtcdSilent"
	diskHangs       = "DocstoreDiskHangs"
	manifestLag     = "DocstoreManifestLag"
	publishError    = "DocstorePublishError"
	announceStopped = "DocstoreAnnounceStopped"
	lag             = "DocstoreLag"
	canaryLate      = "DocstoreCanaryLate"
	peersFail       = "BoxcarPeersFail"
	// contactAge is no alert of alertsFile: manifestSilent with the limit contactTime.
	contactAge = "contact age"
)

const (
	// giveUpTime is the time in which an operation on the store, with all its attempts, has failed.
	giveUpTime = 3 * time.Minute
	// failTime is the time in which a server knows that a request to the store fails, or hangs.
	failTime = 45 * time.Second
	// silentTime is the limit of manifestSilent, and more than that of etcdSilent.
	silentTime = 2*time.Minute + failTime
	// contactTime is more than the time between two readings of the record by a server that reaches the store.
	contactTime = 30 * time.Second
	// noticeTime is the time in which the updater has read a change of the record.
	noticeTime = 10 * time.Second
	// canaryTime is more than the limit of canaryLate, by the time between two scrapes.
	canaryTime = 5*time.Minute + scrapeEach*probeInterval
	// lagTime is the time in which it is known that a manifest cannot be fetched, with the limit of
	// manifestLag.
	lagTime = giveUpTime + 15*time.Minute
)

// report is an alert that must hold while a fault lasts, from a time after its beginning on: then the
// alert fires if the fault lasts longer than its "for".
type report struct {
	kind    string
	alert   string
	after   time.Duration
	updater bool                         // the updater raises it
	given   func(c Config, f Fault) bool // nil: always
	begun   func(w *world) bool          // reports whether the fault has had its effect; nil: it has
}

var reports = []report{
	{kind: "server off", alert: down, after: probeTime},
	{kind: "server disk full", alert: diskFull, after: probeTime},
	{kind: "server without inodes", alert: diskFull, after: probeTime},
	{kind: "server without store", alert: manifestError, after: failTime},
	{kind: "server without store", alert: manifestSilent, after: silentTime},
	{kind: "server without store", alert: unequal, after: giveUpTime, given: othersAdvance},
	{kind: "store away", alert: manifestError, after: failTime},
	{kind: "store away", alert: manifestSilent, after: silentTime},
	{kind: "server without store", alert: canaryLate, after: canaryTime, given: hasCanaries},
	{kind: "store away", alert: canaryLate, after: canaryTime, given: hasCanaries},
	{kind: "store hangs", alert: canaryLate, after: canaryTime, given: hasCanaries},
	{kind: "copying stops", alert: canaryLate, after: canaryTime, given: hasCanaries},
	{kind: "pin", alert: canaryLate, after: canaryTime, given: hasCanaries, begun: isPinned},
	{kind: "store away", alert: publishError, after: giveUpTime, updater: true},
	{kind: "store hangs", alert: manifestError, after: failTime},
	{kind: "store hangs", alert: manifestSilent, after: silentTime},
	{kind: "etcd away", alert: etcdSilent, after: silentTime},
	{kind: "store hangs", alert: publishError, after: giveUpTime, updater: true},
	{kind: "server fetches fail", alert: manifestError, after: giveUpTime, given: allFetchesFail},
	// While the reader of the column tries to get an increment, it learns of no manifest, and then the files fail.
	{kind: "server fetches fail", alert: manifestError, after: 2 * giveUpTime, given: allIncrementsFail},
	{kind: "server fetches fail", alert: manifestLag, after: lagTime, given: allFetchesFail},
	{kind: "copying stops", alert: unequal, after: giveUpTime, given: othersAdvance},
	{kind: "pin", alert: announceStopped, after: noticeTime, updater: true, given: announcedByAppend, begun: isPinned},
}

// serves reports whether a host is a server with collections. One of a column may have no shards, and
// then follows nothing.
func (w *world) serves(host string) bool {
	h := w.host(host)
	if h == nil {
		return false
	}
	s := h.started()
	return s != nil && len(s.Collections()) > 0
}

// othersAdvance reports whether other servers read several segments meanwhile.
func othersAdvance(c Config, _ Fault) bool {
	return c.Shards == 0 && c.Servers > 1 && c.segmentAge() < time.Minute
}

// allFetchesFail reports whether a server cannot get files. Those of a column get them from others.
func allFetchesFail(c Config, f Fault) bool { return c.Shards == 0 && allFail(f) }

// allIncrementsFail reports whether a server of a column cannot get increments, which only the store has.
func allIncrementsFail(c Config, f Fault) bool { return c.Shards > 0 && c.Increments && allFail(f) }

// allFail reports whether all requests of failing fetches fail.
func allFail(f Fault) bool {
	d := chance.New(f.Draw).Next(f.Kind)
	return drawFetches(&d) == 1
}

// announcedByAppend reports whether append announces.
func announcedByAppend(c Config, _ Fault) bool { return c.Increments }

// hasCanaries reports whether each server reads canaries.
func hasCanaries(c Config, _ Fault) bool { return c.Canaries > 0 && c.Shards == 0 }

// isPinned reports whether all servers are pinned, so that append does not announce.
func isPinned(w *world) bool {
	log, err := publish.OpenLog(context.Background(), w.store.Objects(), time.Now)
	w.must(err)
	record, err := log.Load(context.Background())
	w.must(err)
	return record.PinOf("") != nil
}

// missingReports returns the alerts that a host must raise and does not. Unless a server sees a fault
// at once, it must be the only one since the servers were sound.
func (w *world) missingReports(host string, updater bool, raised []string) (missing []string) {
	if h := w.host(host); slices.Contains(raised, down) || h != nil && h.hasFault("server disk stalls", "server disk slow") {
		return nil // its metrics cannot be read, or are those of before
	}
	for _, f := range w.config.Faults {
		for _, r := range reports {
			lasts := time.Since(w.start.Add(f.At))
			due := r.kind == f.Kind && r.updater == updater && (f.Target == "" || f.Target == host) && lasts > r.after && lasts < f.For
			knows := updater || r.alert == down || w.serves(host)
			if due && knows && !slices.Contains(raised, r.alert) && (r.after < noticeTime || w.isAlone(f)) && (r.given == nil || r.given(w.config, f)) && (r.begun == nil || r.begun(w)) {
				missing = append(missing, r.alert)
			}
		}
	}
	return missing
}

// isAlone reports whether all was well when a fault began, and no other one has begun.
func (w *world) isAlone(f Fault) bool {
	return f.At > settleTime && !slices.ContainsFunc(w.config.Faults, func(other Fault) bool {
		return other != f && other.At+other.For+settleTime > f.At && !w.start.Add(other.At).After(time.Now())
	})
}

// outageShare is the share of the configurations that have one long fault.
const outageShare = 0.1

// drawOutage draws one fault that lasts so long that its alert must hold.
func drawOutage(d *chance.Draw, c Config) (work time.Duration, faults []Fault) {
	for range outageAttempts {
		r := reports[d.Int(len(reports))]
		k := kindOf(r.kind)
		f := Fault{At: settleTime + d.Duration(time.Second, time.Minute), Kind: k.name, For: r.after + d.Duration(time.Minute, 2*time.Minute), Draw: d.Uint64()}
		if k.server {
			f.Target = "server-" + itoa(d.Int(c.Servers))
		}
		if k.possible(c) && (r.given == nil || r.given(c, f)) {
			return f.At + f.For, []Fault{f}
		}
	}
	return c.Work, c.Faults
}

// outageAttempts bounds the attempts to draw a fault that must raise its alert.
const outageAttempts = 20

// Words in the kinds of faults: of files of a server that are damaged or cannot be written, of servers
// that start, and of the network.
var (
	diskWords    = []string{"disk", "inodes", "fail", "flip", "power", "crash", "off", "interrupted", "replaced", "lost", "copy"}
	startWords   = []string{"restart", "kill", "power", "crash", "off", "interrupted", "replaced", "disk"}
	networkWords = []string{"isolated", "silent", "partition", "link", "reset"}
)

// causes are words in the kinds of faults that explain an alert of the server that has them, or of
// all. A server that starts or fetches explains notReady and unequal.
var causes = map[string][]string{
	down:                     slices.Concat(startWords, diskWords, networkWords, []string{"queue restored"}),
	manifestError:            slices.Concat(diskWords, networkWords, []string{"store", "etcd"}),
	manifestLag:              {"fetches"},
	manifestSilent:           slices.Concat(diskWords, networkWords, []string{"store", "etcd"}),
	contactAge:               slices.Concat(diskWords, networkWords, []string{"store", "etcd"}),
	etcdSilent:               slices.Concat(networkWords, []string{"etcd"}),
	diskHangs:                {"disk"},
	canaryLate:               slices.Concat(startWords, diskWords, networkWords, []string{"store", "etcd", "updater", "log", "pin", "rollback", "canary", "discard", "copying"}),
	damage:                   append([]string{"queue restored"}, diskWords...),
	diskFull:                 {"disk full", "inodes"},
	publishError:             {"store", "etcd", "updater"},
	announceStopped:          {"pin", "rollback", "canary", "discard", "updater", "log"},
	"DocstoreTailStopped":    append([]string{"truncated", "queue restored"}, diskWords...),
	"DocstoreErrors":         {"reads fail"},
	"DocstoreIndexProblem":   diskWords,
	"DocstoreWritesStopped":  {"disk slow"},
	"DocstoreShardFailed":    slices.Concat(diskWords, []string{"store", "isolated"}),
	"DocstorePlacementStale": slices.Concat(startWords, networkWords, []string{"etcd"}),
	"DocstoreMoveSlow":       {"drained", "etcd restored"},
	peersFail:                networkWords,
}

// recoverTime is the time after which faults that have ended do not explain these alerts any more, unless
// the run is destructive. Other alerts are explained for the rest of the run.
var recoverTime = map[string]time.Duration{
	manifestError: failTime,
	contactAge:    contactTime,
}

// mostAhead is less than the limit of DocstoreLag by more than the time in which a server reads new
// entries.
const mostAhead = 4 * time.Minute

// explains reports whether a fault explains an alert of a host. Handshakes time out if the network of
// either peer fails, so a fault of another host explains peersFail. By a clock that is ahead of that of the
// ingest host, new entries are old until they are read.
func (w *world) explains(alert, host string) bool {
	if h := w.host(host); alert == lag && h != nil && h.clock.ahead()+w.ingestBehind() > mostAhead {
		return true
	}
	if alert == peersFail && w.access != nil {
		return true // clients without a valid token connect again and again
	}
	recovery, recovers := recoverTime[alert]
	return alert == notReady || alert == unequal || slices.ContainsFunc(w.config.Faults, func(f Fault) bool {
		word := func(word string) bool { return strings.Contains(f.Kind, word) }
		lasts := time.Since(w.start.Add(f.At))
		return (f.Target == "" || f.Target == host || alert == peersFail) && lasts >= 0 && (!recovers || w.config.Destructive || lasts <= f.For+recovery) && slices.ContainsFunc(causes[alert], word)
	})
}

// ingestBehind returns how far the clock of an ingest host has been behind.
func (w *world) ingestBehind() time.Duration {
	return max(w.updaters[0].clock.mostBehind(), w.updaters[1].clock.mostBehind())
}

// checkRaised judges the alerts that a host raises.
func (w *world) checkRaised(host string, updater bool, alerts []string) {
	for _, name := range alerts {
		if !w.explains(name, host) {
			w.account.wrongf("alerts", "%s raises %s, and no fault explains it", host, name)
		}
	}
	if missing := w.missingReports(host, updater, alerts); len(missing) > 0 {
		w.account.wrongf("alerts", "%s raises %v, and not %v", host, alerts, missing)
	}
}
