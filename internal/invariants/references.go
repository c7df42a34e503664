package invariants

// References panics if a count of references has fallen below zero: somebody has let
// go twice of what.
func References(count int64, what string) {
	if Enabled && count < 0 {
		panic("invariants: " + what + " was let go of more often than it was held")
	}
}

// Spoil overwrites what a caller was lent and has to give back by now, so that one
// who keeps it too long notices.
func Spoil(lent []byte) {
	if Enabled {
		for i := range lent {
			lent[i] = 0xdd
		}
	}
}
