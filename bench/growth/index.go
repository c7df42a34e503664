package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"docstore/lsm"
)

// index is an lsm.DB with keys of 8 bytes in random order and values of 12 bytes.
type index struct {
	db         *lsm.DB
	key, value []byte
}

func openIndex(dir string) (*index, error) {
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

// write adds the entries from, from+1, ... to-1.
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

// read reads an entry; there is none with a number that was not written.
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

// settle waits until no merge is in progress.
func (i *index) settle() error { return i.db.WaitIdle(context.Background()) }
func (i *index) tables() int   { return len(i.db.Stats().Tables) }
func (i *index) close() error  { return i.db.Close() }

// debt returns the bytes that merges in progress have still to write.
func (i *index) debt() (total uint64) {
	for _, m := range i.db.Stats().Merges {
		total += m.InputBytes - min(m.InputBytes, m.WrittenBytes)
	}
	return total
}
