// Package gossip lets servers and clients find each other, and number themselves,
// without anything that has to run besides them.
//
//	member, err := gossip.Join("gossip://10.0.0.1:7946,10.0.0.2:7946", &gossip.Options{
//		Kind:   gossip.Backend,
//		Server: discovery.Server{Address: "10.0.1.7:7070"},
//	})
//	pool, err := boxcarrpc.NewPool(member, &boxcarrpc.PoolOptions{SubsetSize: 20})
//
// It is hashicorp/memberlist, which is SWIM with extensions: each member probes
// others and tells some others what it knows. A member's metadata say what it is:
//
//	{"kind":"backend","number":7,"claimed":1763719200000000000,"settled":true,"address":"10.0.1.7:7070","weight":2}
//
// # Numbers
//
// Numbers are unique in the end, not at each moment: two members may claim the same
// until they hear of each other, as after a partition. Then a member that has held the
// number for 30 s, by its monotonic clock, keeps it against one that has not; between
// two of a kind the one whose claim is older, by the wall clocks of both, and by name if
// that is equal. The others claim again. All members that want a number, those that
// lost one among them, take the free ones in the order of their age, as each of them
// computes from what it knows: members who know the same do not collide, and many
// that come at once need a few rounds and not as many as they are. A snapshot lists
// only the keeper of a number, so that no watcher ever sees two.
//
// A member that was cut off is declared dead by the others. Every RejoinInterval a
// member tries one of the seeds, or of the members that it knew, that it does not
// hear of now: so the parts of a cluster find each other after a partition.
//
// Concurrency: a Member is safe for concurrent use.
package gossip
