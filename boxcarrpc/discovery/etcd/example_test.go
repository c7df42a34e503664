package etcd_test

import (
	"fmt"

	"docstore/boxcarrpc/discovery/etcd"
)

func ExampleOpen() {
	_, err := etcd.Open("etcd://10.0.0.1:2379", nil)
	fmt.Println(err)
	// Output: etcd: etcd://10.0.0.1:2379: name a prefix for the keys, as in etcd://10.0.0.1:2379/search
}
