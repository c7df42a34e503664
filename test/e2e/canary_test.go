//go:build linux

package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/docservice"
	"docstore/docservice/sharded/etcdclient"
)

const (
	// canaryPause is the pause after a call of the canary, which leaves the processors to the
	// daemons.
	canaryPause = time.Millisecond
	// callPatience bounds a call of the canary on a loaded machine.
	callPatience = time.Minute
	// canaryBatch is the number of ids of a batch.
	canaryBatch = 50
	// hurry is the deadline of calls that may fail at any time.
	hurry = 250 * time.Millisecond
	// absentID is the id of no document.
	absentID = "none"
)

// answers are the right answers to calls.
type answers interface {
	// begin returns the state of the collection that a call which begins now must see, or a
	// later one.
	begin() int
	// wrong returns why a document is not that of the id, or the empty string. begun is the
	// result of begin before the call.
	wrong(id string, begun int, document []byte, found bool) string
}

// unchanging are the documents of a collection that does not change.
type unchanging map[string][]byte

func (u unchanging) begin() int { return 0 }

func (u unchanging) wrong(id string, _ int, document []byte, found bool) string {
	want := u[id]
	switch {
	case !found && want != nil:
		return "not found, and it exists"
	case found && !bytes.Equal(document, want):
		return fmt.Sprintf("wrong document: %.80q, want %.80q", document, want)
	}
	return ""
}

// canary reads all ids continuously until stop, and accounts for each answer.
type canary struct {
	f       *columnFleet
	want    answers
	client  *etcdclient.Client
	account *account
	pause   time.Duration // after a call
	end     atomic.Bool
	running sync.WaitGroup
	passes  atomic.Int64 // over all ids
}

// startCanary reads the documents with a client of these options.
func (f *columnFleet) startCanary(account *account, want answers, options *etcdclient.Options) *canary {
	f.t.Helper()
	c := f.openCanary(account, want, options)
	c.run(c.gets)
	c.run(c.batches)
	c.run(c.pages)
	c.run(c.hurried)
	return c
}

// openCanary is startCanary without calls.
func (f *columnFleet) openCanary(account *account, want answers, options *etcdclient.Options) *canary {
	f.t.Helper()
	client, err := etcdclient.Open(f.etcd.Address, collectionName, options)
	require.NoError(f.t, err)
	f.t.Cleanup(func() { _ = client.Close() })
	require.NoError(f.t, client.WaitReady(f.t.Context()))
	c := &canary{f: f, want: want, client: client, account: account, pause: canaryPause}
	f.t.Cleanup(c.halt)
	return c
}

// run calls read, which reads all ids, until the canary ends.
func (c *canary) run(read func(context.Context)) {
	c.running.Go(func() {
		for !c.end.Load() {
			read(c.f.t.Context())
			c.passes.Add(1)
		}
	})
}

// halt ends the calls.
func (c *canary) halt() {
	c.end.Store(true)
	c.running.Wait()
}

// call is a call of the canary, or an id of a batch.
type call struct {
	kind    string
	begun   int
	started time.Time
	excuse  *disturbance // in which the call may fail
	mark    int64
}

func (c *canary) begin(kind string, excuse *disturbance) call {
	return call{kind: kind, begun: c.want.begin(), started: time.Now(), excuse: excuse, mark: excuse.mark()}
}

// answered accounts for the answer to a call. An err other than "not found" is a failed call.
func (c *canary) answered(of call, id string, document []byte, err error) {
	found := err == nil
	switch {
	case found || errors.Is(err, docservice.ErrNotFound):
		if wrong := c.want.wrong(id, of.begun, document, found); wrong != "" {
			c.account.violated(fmt.Errorf("%s of %s after %s: %s", of.kind, id, time.Since(of.started), wrong))
		} else if found {
			c.account.count(of.kind, outcomeFound)
		} else {
			c.account.count(of.kind, outcomeAbsent)
		}
	default:
		reason := reasonOf(err)
		c.account.count(of.kind, outcomeFailed+reason)
		if !of.excuse.excuses(of.mark) {
			c.account.violated(fmt.Errorf("%s of %s after %s: %w", of.kind, id, time.Since(of.started), err))
		}
	}
}

func (c *canary) gets(ctx context.Context) {
	get := func(id string) {
		call, cancel := context.WithTimeout(ctx, callPatience)
		defer cancel()
		of := c.begin("get", &c.f.disturbance)
		document, err := c.client.Get(call, nil, id)
		c.account.took(time.Since(of.started))
		c.answered(of, id, document, err)
	}
	for _, d := range c.f.documents {
		get(d.id)
		time.Sleep(c.pause)
		if c.end.Load() {
			return
		}
	}
	get(absentID)
}

func (c *canary) batches(ctx context.Context) {
	for documents := range slices.Chunk(c.f.documents, canaryBatch) {
		var ids []string
		for _, d := range documents {
			ids = append(ids, d.id)
		}
		call, cancel := context.WithTimeout(ctx, callPatience)
		of := c.begin("batch", &c.f.disturbance)
		err := c.client.GetMany(call, ids, func(i int, document []byte, err error) error {
			c.answered(of, ids[i], document, err)
			return nil
		})
		cancel()
		if err != nil {
			c.answered(of, ids[0], nil, err)
		}
		time.Sleep(c.pause)
		if c.end.Load() {
			return
		}
	}
}

// pages reads over HTTP from any daemon: each answers for all shards. A call may fail
// while its daemon is disturbed.
func (c *canary) pages(ctx context.Context) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, d := range c.f.documents {
		if c.end.Load() {
			return
		}
		c.f.mu.Lock()
		page := c.f.mu.pages[r.IntN(len(c.f.mu.pages))]
		c.f.mu.Unlock()
		call, cancel := context.WithTimeout(ctx, callPatience)
		of, mark := c.begin("http", &page.disturbance), c.f.disturbance.mark()
		status, body, err := getPage(call, "http://"+page.http+"/documents/"+collectionName+"/"+d.id)
		cancel()
		if c.f.disturbance.excuses(mark) {
			of.excuse, of.mark = &c.f.disturbance, mark
		}
		switch {
		case err != nil:
		case status == http.StatusNotFound:
			err = docservice.ErrNotFound
		case status != http.StatusOK:
			err = httpStatusError(status)
		}
		c.answered(of, d.id, body, err)
		time.Sleep(c.pause)
	}
}

// hurried reads with a short deadline. Its calls may fail, but not with a wrong answer.
func (c *canary) hurried(ctx context.Context) {
	var always disturbance
	always.change()
	for _, d := range c.f.documents {
		if c.end.Load() {
			return
		}
		call, cancel := context.WithTimeout(ctx, hurry)
		of := c.begin("hurried get", &always)
		document, err := c.client.Get(call, nil, d.id)
		cancel()
		c.answered(of, d.id, document, err)
		time.Sleep(c.pause)
	}
}

// httpStatusError is a status other than 200 and 404.
type httpStatusError int

func (e httpStatusError) Error() string { return fmt.Sprintf("status %d", int(e)) }

func getPage(ctx context.Context, url string) (status int, body []byte, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, nil, err
	}
	defer response.Body.Close()
	body, err = io.ReadAll(response.Body)
	return response.StatusCode, body, err
}

// require requires that no answer was wrong, and no call failed outside of a disturbance, so far.
func (c *canary) require(what string) {
	c.f.t.Helper()
	require.NoError(c.f.t, c.account.violation(), what)
}

// stop ends the calls, and requires that each document was read and no answer was wrong.
func (c *canary) stop() {
	c.f.t.Helper()
	c.halt()
	c.require("at the end")
	require.Positive(c.f.t, c.passes.Load())
	c.f.t.Logf("%d passes over all %d ids: %s", c.passes.Load(), len(c.f.documents), c.account)
}
