//go:build race

package lsm

// underRace tells that copying large values takes seconds.
const underRace = true
