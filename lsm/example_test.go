package lsm_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"docstore/lsm"
)

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func Example() {
	dir, err := os.MkdirTemp("", "lsm")
	must(err)
	defer os.RemoveAll(dir)

	db, err := lsm.Open(filepath.Join(dir, "index"), nil)
	must(err)
	defer db.Close()

	var batch lsm.Batch
	must(batch.Set([]byte("apple"), []byte("red")))
	must(batch.Set([]byte("pear"), []byte("green")))
	must(db.Apply(&batch))
	must(db.Delete([]byte("pear")))

	value, err := db.Get(nil, []byte("apple"))
	fmt.Println(string(value), err)
	_, err = db.Get(nil, []byte("pear"))
	fmt.Println(errors.Is(err, lsm.ErrNotFound))
	// Output:
	// red <nil>
	// true
}

func ExampleIterator() {
	dir, err := os.MkdirTemp("", "lsm")
	must(err)
	defer os.RemoveAll(dir)
	db, err := lsm.Open(dir, &lsm.Options{Durability: lsm.PowerLoss})
	must(err)
	defer db.Close()
	for _, key := range []string{"job/1", "job/2", "job/3", "person/1"} {
		must(db.Set([]byte(key), []byte("of "+key)))
	}

	it := db.NewIter(&lsm.IterOptions{Prefix: []byte("job/")})
	defer it.Close()
	for ok := it.Last(); ok; ok = it.Prev() {
		fmt.Printf("%s: %s\n", it.Key(), it.Value())
	}
	must(it.Err())
	// Output:
	// job/3: of job/3
	// job/2: of job/2
	// job/1: of job/1
}

func ExampleNewBuilder() {
	dir, err := os.MkdirTemp("", "lsm")
	must(err)
	defer os.RemoveAll(dir)

	b, err := lsm.NewBuilder(dir, nil)
	must(err)
	defer b.Close()
	for i := range 1000 {
		must(b.Set(fmt.Appendf(nil, "%04d", i), nil))
	}
	fmt.Println(b.Set([]byte("0007"), nil) != nil)
	// Output: true
}
