package etcd_test

import (
	"fmt"

	"docstore/boxcarrpc/discovery/etcd"
)

func ExampleOpen() {
	_, err := etcd.Open("etcd://10.0.0.1:2379", nil)
	fmt.Println(err)
	// Output: etcd: etcd://10.0.0.1:2379: no key prefix; use, for example, etcd://10.0.0.1:2379/search
}
