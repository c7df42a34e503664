package lsm

import (
	"io"

	"github.com/cockroachdb/errors"

	"docstore/internal/vfs"
	"docstore/lsm/internal/kv"
	"docstore/lsm/internal/table"
)

// Builder creates a store with one table from sorted input. It is not safe for
// concurrent use.
type Builder struct {
	env    environment
	lock   io.Closer
	number uint64 // of the table
	writer *table.Writer
	err    error // the first error; final
}

// NewBuilder begins a store in a directory without a store, or with an empty one to
// which nothing was ever written. Otherwise the error is ErrExists.
func NewBuilder(dir string, opts *Options) (*Builder, error) {
	o, err := opts.resolve()
	if err != nil {
		return nil, err
	}
	if o.ReadOnly {
		return nil, ErrReadOnly
	}
	if err := vfs.MakeDir(o.FS, dir); err != nil {
		return nil, errors.Wrap(err, "lsm: make the directory")
	}
	b := &Builder{env: newEnvironment(dir, o, nil)}
	if b.lock, err = lockDir(o.FS, dir); err != nil {
		return nil, err
	}
	if err := b.begin(o); err != nil {
		return nil, errors.CombineErrors(err, b.lock.Close())
	}
	return b, nil
}

// begin creates an empty store, which remains until Finish.
func (b *Builder) begin(o Options) error {
	db := newDB(b.env.dir, o)
	err := db.open()
	if err == nil && (len(db.schedule.current.Load().tables) > 0 || db.commit.visible.Load() > 0) {
		err = errors.Wrapf(ErrExists, "%s holds a store", b.env.dir)
	}
	b.env.Store = db.env.Store
	b.number = db.schedule.mu.nextNumber
	if err := errors.CombineErrors(err, db.Close()); err != nil {
		return err
	}
	b.writer, err = b.env.createTable(b.number, true)
	return err
}

// Set adds a value. The error is ErrOutOfOrder if key is not greater than the previous
// one.
func (b *Builder) Set(key, value []byte) error {
	if b.err == nil {
		b.err = checkSizes(key, len(value))
	}
	if b.err == nil {
		b.err = b.writer.Add([]kv.Entry{{Key: key, Value: value}}, false)
	}
	return b.err
}

// Finish completes the store. When it returns nil, the store is durable. After an error
// the directory has an empty store.
func (b *Builder) Finish() error {
	if b.err != nil {
		return b.err
	}
	entries := b.writer.Entries()
	facts, err := b.writer.Finish(1, max(1, entries))
	if err == nil && entries > 0 {
		err = b.env.FS.SyncDir(b.env.dir)
	}
	if err != nil {
		b.writer.Abandon()
		b.writer, b.err = nil, err
		return err
	}
	m := manifest{id: b.env.Store, nextNumber: b.number + 1, firstLog: b.number + 1}
	if entries > 0 {
		m.tables, m.lastSequence = []table.Facts{facts}, entries
	}
	b.writer = nil
	if err := m.write(b.env.FS, b.env.path(manifestName)); err != nil {
		b.err = err
		return err
	}
	return b.Close()
}

// Close aborts unless Finish was called. It is idempotent.
func (b *Builder) Close() error {
	if b.writer != nil {
		b.writer.Abandon()
		b.writer = nil
	}
	b.err = ErrClosed
	lock := b.lock
	if b.lock = nil; lock == nil {
		return nil
	}
	return errors.Wrap(lock.Close(), "lsm: unlock")
}
