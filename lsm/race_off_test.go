//go:build !race

package lsm

const underRace = false
