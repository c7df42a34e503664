//go:build race

package lsm

// underRace tells that copying large values takes seconds; tests that try every
// place try some.
const underRace = true
