package column

import (
	"context"
	"path/filepath"
	"time"

	"docstore/boxcarrpc/discovery/etcd"
	"docstore/docservice/placement"
	"docstore/internal/ctxtime"
	"docstore/internal/vfs"

	"github.com/cockroachdb/errors"
)

const (
	// announcedInterval is the interval at which the announced manifest is read.
	announcedInterval = 10 * time.Second
	// existsInterval is the interval at which a server checks that etcd has a map.
	existsInterval = 5 * time.Second
	// absentTime is the time for which etcd must have no map before one is created: after a
	// loss of etcd the servers with the last map report themselves again in that time.
	absentTime = 3 * time.Second
)

// join chooses the column, claims a row, and reports the state of this server, until it
// leaves.
func (c *Column) join() {
	ctx := c.member
	if c.Name() == "" {
		c.again(ctx, "choosing the column", func() error { return c.options.Store.Exclusive(ctx, c.chooseAndClaim) })
	} else {
		c.again(ctx, "claiming a row", func() error { return c.claim(ctx) })
	}
	c.mu.Lock()
	number, registry := c.mu.number, c.mu.registry
	c.mu.Unlock()
	if number == nil {
		return // left before
	}
	c.keepReporting(ctx, number)
	_ = registry.Close() // the connection is that of the Store: it returns no error
}

var errNoColumns = errors.New("there is no column yet: start the first server of each column with its name")

// chooseAndClaim chooses a column and claims a row of it, while no other server does.
func (c *Column) chooseAndClaim(ctx context.Context) error {
	store := c.options.Store
	states, err := store.States(ctx)
	if err != nil {
		return err
	}
	control, err := store.Control(ctx)
	if err != nil {
		return err
	}
	m, _ := store.Map()
	rows := map[string]map[int]string{}
	for _, name := range columns(m, states, control.Drained) {
		registry, err := store.Column(name)
		if err != nil {
			return err
		}
		rows[name], err = registry.Rows(ctx)
		if err := errors.CombineErrors(err, registry.Close()); err != nil {
			return err
		}
	}
	name := choose(rows, c.options.Server.Address)
	if name == "" {
		return errNoColumns
	}
	c.logger.Info("joining a column", "column", name)
	c.mu.Lock()
	c.mu.column = name
	c.mu.Unlock()
	if err := c.claim(ctx); err != nil {
		c.mu.Lock()
		c.mu.column = ""
		c.mu.Unlock()
		return err
	}
	c.mu.Lock()
	number := c.mu.number
	c.mu.Unlock()
	_, err = number.Wait(ctx) // so that the next server counts it
	return err
}

// claim keeps the name of the column and starts to claim a row.
func (c *Column) claim(ctx context.Context) error {
	name := c.Name()
	if err := vfs.WriteFileAtomic(c.options.FS, filepath.Join(c.options.Dir, columnName), []byte(name+"\n")); err != nil {
		return err
	}
	zone, zones, err := c.options.Store.Zone(ctx, c.options.Zone)
	if err != nil {
		return err
	}
	token, err := c.token()
	if err != nil {
		return err
	}
	registry, err := c.options.Store.Column(name)
	if err != nil {
		return err
	}
	number, err := registry.Row(c.options.Server, etcd.RowOptions{First: zone, Step: zones, Rejoin: c.options.Rejoin, Token: token})
	if err != nil {
		return errors.CombineErrors(err, registry.Close())
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.number, c.mu.registry = number, registry
	return nil
}

// keepReporting reports the state under the number that is held, until ctx ends. While the
// number is lost, the last one is used: the reports end with their own lease.
func (c *Column) keepReporting(ctx context.Context, number *etcd.Number) {
	row := -1
	for {
		changed := number.Changed()
		if now, ok := number.Get(); ok && now != row {
			row = now
			c.reportAs(row)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			c.mu.Lock()
			reporter := c.mu.reporter
			c.mu.reporter = nil
			c.mu.Unlock()
			if reporter != nil {
				_ = reporter.Close() // it returns no error
			}
			return
		}
	}
}

// reportAs begins to report as the server of a row.
func (c *Column) reportAs(row int) {
	c.mu.Lock()
	before := c.mu.reporter
	c.mu.reporter = nil
	c.mu.Unlock()
	if before != nil {
		_ = before.Close() // it returns no error
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.state.Row = row
	state := c.mu.state
	if state.Address == "" { // no map is known yet
		state = placement.ServerState{Address: c.options.Server.Address, Page: c.options.Page, Zone: c.options.Zone, Column: c.mu.column, Row: row}
	}
	c.mu.reporter = c.options.Store.Report(state)
}

// watchAnnounced reads the announced manifest until this server leaves.
func (c *Column) watchAnnounced() {
	logged := ""
	for {
		announced, err := c.options.Announced(c.member)
		switch {
		case err == nil:
			logged = ""
			c.mu.Lock()
			c.mu.announced = announced
			c.mu.Unlock()
		case c.member.Err() == nil && err.Error() != logged:
			logged = err.Error()
			c.logger.Warn("the announced manifest is not known", "error", err)
		}
		pause := announcedInterval
		if err != nil {
			pause = retryPause
		}
		if !ctxtime.Sleep(c.member, pause) {
			return
		}
	}
}

func (c *Column) announced() Announced {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.announced
}

// ensureMap creates the map when etcd has none for a time, until this server leaves.
func (c *Column) ensureMap() {
	var absent time.Time
	logged, pause := "", retryPause
	for ctxtime.Sleep(c.member, pause) {
		exists, err := c.options.Store.Exists(c.member)
		pause = retryPause
		switch {
		case err != nil || exists:
			absent, pause = time.Time{}, existsInterval
			continue
		case absent.IsZero():
			absent = time.Now()
			continue
		case time.Since(absent) < absentTime:
			continue
		}
		err = c.options.Store.Ensure(c.member, c.firstMap)
		switch {
		case err == nil:
			c.logger.Info("the placement was created")
			absent, logged = time.Time{}, ""
		case c.member.Err() == nil && err.Error() != logged:
			logged = err.Error()
			c.logger.Warn("the placement cannot be created yet; retrying", "error", err)
		}
	}
}

// firstMap returns the map of the announced manifest, without assignments.
func (c *Column) firstMap(context.Context) (*placement.Map, error) {
	a := c.announced()
	if a.Generation == "" {
		return nil, errors.New("no manifest is announced yet")
	}
	return &placement.Map{
		Collection: c.options.Collection, Generation: a.Generation, Layout: a.Layout, Epoch: 1,
		Shards: make([]placement.Place, a.Layout.Shards),
	}, nil
}

// place places shards while this server is elected, until it leaves.
func (c *Column) place() {
	c.options.Store.Place(c.member, c.options.Server.Address, func() []int64 { return c.announced().Bytes })
}
