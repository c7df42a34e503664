package updater

import (
	"encoding/json"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/cmd/internal/cli"
	"docstore/queue"
	"docstore/queue/publish"
)

// Every verdict at the source.
func TestExplainSource(t *testing.T) {
	now := time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)
	end := queue.Position{Next: queue.Address{Segment: 9}}
	at := queue.Address{Segment: 3, Block: 128}
	entry := func(deleted bool) *queue.Entry {
		return &queue.Entry{Address: at, Appended: now.Add(-time.Hour), Deleted: deleted}
	}
	expired := entry(false)
	expired.Expires = now
	record := func(change func(*publish.Record)) publish.Record {
		r := publish.Record{Head: publish.Ref{Number: 8}, Announced: publish.Ref{Number: 7}}
		if change != nil {
			change(&r)
		}
		return r
	}
	pin := func(group string, number uint64) func(*publish.Record) {
		return func(r *publish.Record) {
			r.Pins = []publish.Pin{{Group: group, To: publish.Ref{Number: number}, By: "anna"}}
		}
	}
	frozen := func(r *publish.Record) {
		pin("", 5)(r)
		r.Frozen, r.Bad = true, []publish.Range{{From: 6, To: 8}}
	}
	for name, test := range map[string]struct {
		facts   sourceFacts
		verdict sourceVerdict
		reason  string
		command string
	}{
		"absent":    {sourceFacts{}, sourceAbsent, "the queue has no entry with the id up to 9/0/0", "docstore-updater append --queue Q"},
		"present":   {sourceFacts{Newest: entry(false)}, sourcePresent, "version 3/128/0, appended at 2026-11-27T11:00:00Z, is the newest", "boxcar explain 'a b' --collection NAME"},
		"deleted":   {sourceFacts{Newest: entry(true), Documents: 1}, sourceDeleted, "the delete at 3/128/0, appended at 2026-11-27T11:00:00Z, is the newest entry", "docstore-updater get 'a b' --versions --queue Q"},
		"erased":    {sourceFacts{Newest: entry(true)}, sourceErased, "no document of it is left", ""},
		"expired":   {sourceFacts{Newest: expired}, sourceExpired, "expired at 2026-11-27T12:00:00Z", ""},
		"announced": {sourceFacts{Newest: entry(false), Bucket: "B", Record: record(nil), Place: publish.Place{Manifest: 7}}, sourceAnnounced, "is announced", "boxcar explain 'a b' --collection NAME"},
		"not published": {sourceFacts{Newest: entry(false), Bucket: "B", Record: record(nil)}, sourceNotPublished, "is in no manifest up to 8",
			"docstore-updater seal --queue Q && docstore-updater publish --queue Q --bucket B"},
		"a delete that is not published": {sourceFacts{Newest: entry(true), Bucket: "B", Record: record(nil)}, sourceNotPublished, "the delete at 3/128/0, appended at 2026-11-27T11:00:00Z, is in no manifest",
			"docstore-updater seal --queue Q && docstore-updater publish --queue Q --bucket B"},
		"the stream has stopped": {sourceFacts{Newest: entry(false), Bucket: "B", Record: record(func(r *publish.Record) { r.Held = "too many deletes" })}, sourceNotPublished, "too many deletes",
			"docstore-updater announce --bucket B"},
		"not announced": {sourceFacts{Newest: entry(false), Bucket: "B", Record: record(nil), Place: publish.Place{Manifest: 8}}, sourceNotAnnounced, "is in manifest 8, and 7 is announced",
			"docstore-updater announce --bucket B --to 8"},
		"bad": {sourceFacts{Newest: entry(false), Bucket: "B", Record: record(frozen), Place: publish.Place{Manifest: 7}}, sourceRolledBack, "is in manifest 7, which a rollback has marked as bad",
			"docstore-updater revert --bucket B --queue Q --to 5"},
		"after a rollback": {sourceFacts{Newest: entry(false), Bucket: "B", Record: record(frozen)}, sourceRolledBack, "is not published: a rollback is in progress",
			"docstore-updater revert --bucket B --queue Q --to 5"},
		"pinned": {sourceFacts{Newest: entry(false), Bucket: "B", Record: record(pin("", 6)), Place: publish.Place{Manifest: 7}}, sourcePinned, "is in manifest 7, and all servers are pinned to 6 by anna",
			"docstore-updater unpin --bucket B"},
		"pinned before its increment": {sourceFacts{Newest: entry(false), Bucket: "B", Record: record(pin("eu", 7)), Place: publish.Place{Manifest: 7, Increment: 3}}, sourcePinned, "servers of group eu are pinned to 7",
			"docstore-updater unpin --bucket B --group eu"},
		"pinned after it": {sourceFacts{Newest: entry(false), Bucket: "B", Record: record(pin("", 6)), Place: publish.Place{Manifest: 6}}, sourceAnnounced, "is announced", "boxcar explain 'a b' --collection NAME"},
	} {
		t.Run(name, func(t *testing.T) {
			f := test.facts
			f.ID, f.Dir, f.Queue, f.End, f.Now = "a b", "Q", "Q", end, now
			verdict, reason, command := explainSource(f)
			require.Equal(t, test.verdict, verdict, reason)
			require.Contains(t, reason, test.reason)
			require.Equal(t, test.command, command)
		})
	}
}

// The newest entry of an id, the lines of its record, and the manifest that has published it.
func TestExplain(t *testing.T) {
	l := newLifeCycle(t)
	explained := func(id string, args ...string) (r sourceReport, status int) {
		t.Helper()
		run := run(t.Context(), nil, append([]string{"explain", id, "--queue", l.queue, "--json"}, args...)...)
		require.NoError(t, json.Unmarshal([]byte(run.stdout), &r), run.stderr)
		return r, run.status
	}
	l.publish(`{"id":"a","v":1}` + "\n" + `{"id":"b","v":1}`)
	l.release()
	l.publish(`{"id":"a","_delete":true}`)
	r, status := explained("a", "--bucket", l.url)
	require.Equal(t, sourceNotAnnounced, r.Verdict, r.Reason)
	require.Equal(t, cli.ExitFailure, status)
	require.EqualValues(t, 2, r.Manifest)
	require.EqualValues(t, 1, r.Announced)
	require.Equal(t, l.input+":2", r.Before)
	require.Equal(t, l.input+":3", r.After)
	l.release()
	r, _ = explained("a", "--bucket", l.url)
	require.Equal(t, sourceDeleted, r.Verdict, r.Reason)
	require.True(t, r.Newest.Delete)
	r, status = explained("b", "--bucket", l.url)
	require.Equal(t, sourceAnnounced, r.Verdict, r.Reason)
	require.EqualValues(t, 1, r.Manifest)
	require.Zero(t, status)
	fromBucket := run(t.Context(), nil, "explain", "b", "--bucket", l.url, "--json")
	require.NoError(t, json.Unmarshal([]byte(fromBucket.stdout), &r), fromBucket.stderr)
	require.Equal(t, sourceAnnounced, r.Verdict, r.Reason)
	require.NoDirExists(t, r.Queue)
	r, _ = explained("never")
	require.Equal(t, sourceAbsent, r.Verdict, r.Reason)
	l.prints("pinned to 1", "pin", "--to", "1")
	r, _ = explained("a", "--bucket", l.url)
	require.Equal(t, sourcePinned, r.Verdict, r.Reason)

	text := ok(t, "", "explain", "b", "--queue", l.queue, "--bucket", l.url)
	require.Regexp(t, `(?s)^queue +\S+, up to 2/\S+\nnewest +document 1/\S+, appended at \S+\ndocuments +1\nsource +\S+input:2 or before\npublished +manifest 1; manifest 2 is announced\nnext +boxcar explain b .*\nannounced: version `, text.stdout)
	l.failsAppend("absent: the queue has no entry", "explain", "never", "--queue", l.queue)
	l.failsAppend("no queue in ", "explain", "a", "--queue", filepath.Join(l.root, "none"))
	require.Equal(t, cli.ExitUsage, run(t.Context(), nil, "explain", "", "--queue", l.queue).status)
	require.Equal(t, cli.ExitUsage, run(t.Context(), nil, "explain", "a").status)
}
