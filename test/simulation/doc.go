// Package simulation tests the power of package simulate: each defect that was found in a release,
// and some more where packages meet, is brought back by a change of the source, and the simulator
// must find it.
package simulation
