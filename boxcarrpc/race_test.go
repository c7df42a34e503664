//go:build race

package boxcarrpc

const raceEnabled = true
