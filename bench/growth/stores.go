package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"docstore/bench/internal/files"
	"docstore/docservice"
	"docstore/lsm"
	"docstore/queue"
)

// index is an lsm.DB with keys of 8 bytes in random order and values of 12 bytes.
type index struct {
	db         *lsm.DB
	key, value []byte
}

func openIndex(dir string) (store, error) {
	db, err := lsm.Open(dir, nil)
	return &index{db: db, key: make([]byte, 8)}, err
}

// scramble is a bijection (the finalizer of MurmurHash3): different numbers give different keys.
func scramble(n uint64) uint64 {
	n = (n ^ n>>33) * 0xff51afd7ed558ccd
	n = (n ^ n>>33) * 0xc4ceb9fe1a85ec53
	return n ^ n>>33
}

func (i *index) keyOf(n int) []byte {
	binary.BigEndian.PutUint64(i.key, scramble(uint64(n)+1))
	return i.key
}

func (i *index) write(from, to int) error {
	var value [12]byte
	for n := from; n < to; n++ {
		binary.LittleEndian.PutUint64(value[:], uint64(n))
		if err := i.db.Set(i.keyOf(n), value[:]); err != nil {
			return err
		}
	}
	return nil
}

func (i *index) read(n int) (found bool, err error) {
	i.value, err = i.db.Get(i.value[:0], i.keyOf(n))
	if errors.Is(err, lsm.ErrNotFound) {
		return false, nil
	}
	if err == nil && binary.LittleEndian.Uint64(i.value) != uint64(n) {
		err = fmt.Errorf("entry %d has a wrong value", n)
	}
	return true, err
}

func (i *index) debt() uint64  { return mergeDebt(i.db.Stats()) }
func (i *index) settle() error { return i.db.WaitIdle(context.Background()) }
func (i *index) tables() int   { return len(i.db.Stats().Tables) }
func (i *index) close() error  { return i.db.Close() }

func mergeDebt(s lsm.Stats) (total uint64) {
	for _, m := range s.Merges {
		total += m.InputBytes - min(m.InputBytes, m.WrittenBytes)
	}
	return total
}

// collection is a queue and the collection that indexes it at the same time.
type collection struct {
	lines [][]byte
	w     *queue.Writer
	*docservice.Collection
	last         queue.Address // of this writer's documents
	id, document []byte
}

func (o *options) openCollection(dir string) (store, error) {
	c := &collection{}
	err := files.Lines(o.file, func(line []byte) error {
		c.lines = append(c.lines, bytes.Clone(line))
		return nil
	})
	if err != nil {
		return nil, err
	}
	queued := filepath.Join(dir, "queue")
	if c.w, err = queue.OpenWriter(queued, nil); err != nil {
		return nil, err
	}
	if c.Collection, err = docservice.OpenCollection("growth", queued, filepath.Join(dir, "index"), nil); err != nil {
		return nil, errors.Join(err, c.w.Close())
	}
	return c, nil
}

func (c *collection) idOf(n int) []byte {
	c.id = fmt.Appendf(c.id[:0], "package-%010d", n)
	return c.id
}

func (c *collection) write(from, to int) error {
	for n := from; n < to; n++ {
		var err error
		if c.last, err = c.w.Append(c.idOf(n), c.lines[n%len(c.lines)]); err != nil {
			return err
		}
	}
	return c.w.Flush()
}

func (c *collection) read(n int) (found bool, err error) {
	c.document, err = c.Get(c.document[:0], c.idOf(n))
	if errors.Is(err, docservice.ErrNotFound) {
		return false, nil
	}
	if err == nil && !bytes.Equal(c.document, c.lines[n%len(c.lines)]) {
		err = fmt.Errorf("document %d is wrong", n)
	}
	return true, err
}

// idlePoll is the interval at which settle looks for merges.
const idlePoll = 10 * time.Millisecond

func (c *collection) settle() error {
	err := c.WaitReady(context.Background())
	if c.last != (queue.Address{}) {
		err = c.WaitFor(context.Background(), c.last)
	}
	if err != nil {
		return err
	}
	for {
		s := c.IndexStats()
		if len(s.Merges) == 0 && s.MemtablesWaiting == 0 {
			return s.Problem
		}
		time.Sleep(idlePoll)
	}
}

func (c *collection) debt() uint64 { return mergeDebt(c.IndexStats()) }
func (c *collection) tables() int  { return len(c.IndexStats().Tables) }

func (c *collection) close() error { return errors.Join(c.w.Close(), c.Close()) }
