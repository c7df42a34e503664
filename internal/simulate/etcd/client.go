package etcd

import (
	_ "unsafe" // for linkname

	_ "go.etcd.io/etcd/client/v3" // initializes the variable before this package
)

// The watches of the client wait for a channel of the whole process, which is never closed. For
// testing/synctest it belongs to no bubble, so its clock would not advance. Without the channel
// package context does not wait.

//go:linkname valCtxCh go.etcd.io/etcd/client/v3.valCtxCh
var valCtxCh chan struct{}

func init() { valCtxCh = nil }
