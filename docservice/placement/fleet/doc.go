// Package fleet describes the servers of a sharded collection to operators: columns by rows,
// moves with their progress, free numbers, and plans before they are applied.
//
//	f, err := fleet.Read(ctx, store)     // store is an etcdmap.Store
//	rates.Add(f)                         // rates of moves, from the reads before
//	p, err := fleet.Propose(ctx, store)  // a plan; nothing changes
//	err = fleet.Apply(ctx, store, p.ID)
//
// Describe and Compare are pure functions. Read, Propose and Apply only use etcd, so that
// they do not depend on a server.
package fleet
