//go:build !race

package boxcarrpc

const raceEnabled = false
