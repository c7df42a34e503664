package invariants

// References panics if a reference count is negative. what names the object.
func References(count int64, what string) {
	if Enabled && count < 0 {
		panic("invariants: " + what + " was released more often than it was referenced")
	}
}

// Spoil overwrites a slice whose lifetime has ended, so that tests detect a caller that
// still uses it.
func Spoil(lent []byte) {
	if Enabled {
		for i := range lent {
			lent[i] = 0xdd
		}
	}
}
