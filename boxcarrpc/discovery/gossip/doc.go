// Package gossip discovers and numbers servers and clients without a separate registry.
//
//	member, err := gossip.Join("gossip://10.0.0.1:7946,10.0.0.2:7946", &gossip.Options{
//		Kind:   gossip.Backend,
//		Server: discovery.Server{Address: "10.0.1.7:7070"},
//	})
//	pool, err := boxcarrpc.NewPool(member, &boxcarrpc.PoolOptions{SubsetSize: 20})
//
// It uses hashicorp/memberlist, an extension of the SWIM protocol: each member probes
// others and gossips its state to some of them. The metadata of a member describes it:
//
//	{"kind":"backend","number":7,"claimed":1763719200000000000,"settled":true,"address":"10.0.1.7:7070","weight":2,"zone":"eu-1a"}
//
// # Numbers
//
// Numbers are eventually unique: two members may claim the same number until they learn
// of each other, for example after a partition. Then a member that has held the number
// for 30 s on its monotonic clock keeps it against one that has not. Otherwise the older
// claim by the members' wall clocks wins, and then the lower name. The other member
// claims again. All members without a number take the free numbers in the order of their
// claims, which each computes from its own view. Members with the same view do not
// collide, so that many members need only a few rounds. A snapshot has only the winner
// of a number.
//
// A partitioned member is declared dead by the others. Every RejoinInterval a member
// tries to join one of the seeds or known members that it is not in contact with, so
// that the parts of a cluster merge after a partition.
//
// A Member is safe for concurrent use.
package gossip
