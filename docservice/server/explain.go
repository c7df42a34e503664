package server

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"docstore/boxcarrpc"
	"docstore/docservice"
	"docstore/docservice/collection"
	"docstore/docservice/explain"
	"docstore/docservice/server/livepage"
	"docstore/internal/buildinfo"
	"docstore/queue"
	"docstore/queue/codec"
)

// answerExplain answers explain.Method.
func (s *Server) answerExplain(ctx context.Context, _ string, request, dst []byte) ([]byte, error) {
	var asked explain.Request
	if err := json.Unmarshal(request, &asked); err != nil {
		return dst, &boxcarrpc.Error{Code: boxcarrpc.CodeInvalidArgument, Message: "explain: the request: " + err.Error(), Processed: true}
	}
	content, err := json.Marshal(s.reporter.facts(ctx, asked.Collection, asked.ID, asked.History))
	return append(dst, content...), err
}

// Explain implements livepage.Source.
func (r *reporter) Explain(ctx context.Context, collection, id string, history bool) explain.Report {
	facts := r.facts(ctx, collection, []byte(id), history)
	return explain.Explain(explain.Question{Collection: collection, ID: id, Servers: []explain.Server{{Address: r.BoxcarAddress(), Facts: &facts}}, Now: r.options.Host.Now()})
}

// facts returns what the server knows about an id, and if it does not find the id and history is
// set, its versions in the queue.
func (r *reporter) facts(ctx context.Context, name string, id []byte, history bool) explain.Facts {
	f := explain.Facts{Version: buildinfo.Version(), HTTP: r.HTTPURL(r.HTTPAddress())}
	if err := r.Authorize(ctx, name); err != nil {
		f.Answer, f.Problem = explain.Forbidden, err.Error()
		return f
	}
	h := r.heldCollection(name)
	if h == nil {
		f.Answer, f.Problem = explain.NoCollection, fmt.Sprintf("the server has no collection %.100q", name)
		return f
	}
	if c := h.Column(); c != nil {
		f.Column = &explain.Column{Name: c.Column, Row: c.Row, Epoch: c.Epoch}
		f.Ready, f.NotReady = c.Report.IsReady(), c.Report.Reason()
	}
	c, elsewhere := h.Lookup(string(id))
	if c != nil {
		f.Cache = string(c.CacheState(id)) // before the document is stored in it again
	}
	_, _, err := r.service.Get(ctx, []byte(name), id, codec.Built(), nil)
	f.Answer, f.Problem = idAnswer(err)
	if elsewhere != "" {
		f.Problem = elsewhere
	}
	for _, one := range h.Shards() {
		if one.Collection == c {
			r.describeShard(&f, one)
		}
	}
	if c == nil || errors.Is(err, docservice.ErrBadID) {
		return f
	}
	if l, err := c.Locate(id); err == nil {
		f.Entry = &explain.Entry{Address: addressOf(l.Address), StoredBytes: l.StoredBytes, Expires: livepage.TimeOrNil(l.Expires)}
	}
	if history && f.Answer != explain.Found {
		f.History = r.history(ctx, c, id)
	}
	return f
}

// idAnswer returns the answer to an id, and its problem.
func idAnswer(err error) (answer, problem string) {
	switch {
	case err == nil:
		return explain.Found, ""
	case errors.Is(err, docservice.ErrNoCollection): // the placement is not known yet
		return docservice.AnswerCode(docservice.ErrUnavailable), err.Error()
	}
	return docservice.AnswerCode(err), err.Error()
}

// describeShard adds the state of the shard.
func (r *reporter) describeShard(f *explain.Facts, s Shard) {
	readiness, position := r.shardReadiness(s), s.Status().Position
	f.Shard, f.Ready, f.NotReady = s.Name(), readiness.Ready, readiness.Reason
	f.Position, f.LagBytes, f.Lag = addressOf(position.Next), readiness.LagBytes, readiness.LagSeconds
	if position.Queue != [16]byte{} {
		f.Queue = hex.EncodeToString(position.Queue[:])
	}
	for _, fault := range readiness.Faults[:min(len(readiness.Faults), explain.MaxFaults)] {
		f.Faults = append(f.Faults, strings.TrimPrefix(fault.Path+": "+fault.Reason, ": "))
	}
	if m := s.Manifest; m != nil {
		f.Manifest = &explain.Manifest{
			Announced: m.Announced, Target: m.Target, Served: m.Served, Increment: m.Increment, Pinned: m.PinnedAt != nil, PinnedBy: m.PinnedBy,
			PinReason: m.PinReason, Frozen: m.Frozen, Held: m.Held, Behind: m.Behind, Error: m.Error,
		}
	}
}

func addressOf(a queue.Address) explain.Address {
	return explain.Address{Segment: uint32(a.Segment), Block: a.Block, Index: uint32(a.Index)}
}

// history searches the queue for the versions of an id.
func (r *reporter) history(ctx context.Context, c *collection.Collection, id []byte) *explain.History {
	h := &explain.History{}
	done, ok := r.search()
	if !ok {
		h.Problem = searchBusy
		return h
	}
	defer done()
	ctx, cancel := context.WithTimeout(ctx, explain.HistoryTime)
	defer cancel()
	err := c.Versions(ctx, id, func(v collection.Version) error {
		h.Newest = &explain.Version{Address: addressOf(v.Address), Appended: v.Appended.Round(0), Deleted: v.Deleted, Expires: livepage.TimeOrNil(v.Expires)}
		if !v.Deleted {
			h.Documents++
		}
		return nil
	})
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		h.Problem = fmt.Sprintf("the queue was not read to its end within %s", explain.HistoryTime.Round(time.Second))
	case err != nil:
		h.Problem = "the queue was not read to its end: " + err.Error()
	}
	return h
}
